// Where the user of this tab is: the open session, what was before it and what is above it, and handoffs that lead elsewhere.
//
// Here: carrying out what the rules decide. Not here: the rules (handoffs), what is kept (tab), showing a session (console).
//
// Invariant: what is said goes to the open session. It changes by the user's own doing, of which the server is told, or by the rules.

import { call, part } from "./api.js";
import { announce, byId, el, name, oneLine, setText } from "./dom.js";
import { Rules, handoffOf } from "./handoffs.js";
import { nameOf } from "./sessions.js";
import { claimTab, keepTab } from "./tab.js";

const RETRY_MS = 1000;
const WATCHED_MOST = 8;
const ENDS = ["turn.completed", "turn.stopped", "turn.failed"];

export class Here {
  #link;
  #sessions;
  #show;
  #looking;
  #tab = null;
  #rules = null;
  #held = [];
  #considered = Promise.resolve();
  #offered = null;
  #following = null;
  #backTo = null;
  #aloud = false;
  #blind = false;
  /** Whether the last result of the open session counts: not where a handoff led to, as what was there before brought nobody. */
  #looksBack = false;
  /** session → ids of our messages there that have no answer: it was left, and is listened to until they have. */
  #watched = new Map();
  #drawn = "";

  /** `show(session)` opens a session's page; `looking()` is whether the page shows sessions at all. */
  constructor(link, sessions, show, looking) {
    this.#link = link;
    this.#sessions = sessions;
    this.#show = show;
    this.#looking = looking;
    byId("go-back").addEventListener("click", () => this.back());
    byId("go-up").addEventListener("click", () => this.up());
    byId("offer-open").addEventListener("click", () => this.accept());
    byId("offer-close").addEventListener("click", () => this.#decline());
  }

  /** This tab's id at the server. */
  get client() {
    return this.#tab.client;
  }

  /** Take this tab's id and what it has kept. Returns the id. */
  async begin() {
    this.#tab = await claimTab();
    this.#rules = new Rules(this.#tab.client, this.#tab.handled);
    this.#rules.frontiers = this.#tab.frontiers;
    this.#link.client = this.#tab.client;
    return this.#tab.client;
  }

  /**
   * The page shows a session, or none. It is the user who went there, unless it was followed to, or the page starts where this tab was: then
   * it is a reload, and a handoff that was missed is newer than where the user went last.
   */
  enter(id, starts) {
    const before = this.#rules.open;
    const followed = id !== null && id === this.#following;
    const reload = starts && id === this.#tab.open && !this.#tab.going;
    this.#following = null;
    this.#looksBack = !followed;
    if (!followed && id !== this.#backTo) this.#remember(before, id);
    this.#backTo = null;
    this.#watched.delete(id);
    if (id === null || reload) {
      this.#rules.open = id;
    } else if (!followed) {
      this.#rules.navigate(id);
      this.#link.navigate(id);
    }
    this.#changed();
  }

  /** A session is shown: say where that is. */
  shown(session) {
    this.#draw(session);
    if (this.#aloud) announce(`Opened ${oneLine(nameOf(session))}`);
    this.#aloud = false;
  }

  /** A session is left: listen on while our messages there, by their ids, have no answer. */
  left(id, unanswered) {
    if (unanswered.length === 0) {
      this.#link.leave(id);
      return;
    }
    this.#watched.set(id, new Set(unanswered));
    if (this.#watched.size > WATCHED_MOST) this.#unwatch(this.#watched.keys().next().value);
  }

  /** Something happened in a session that was left. */
  aside({ session, id, kind, data }) {
    const waiting = this.#watched.get(session);
    if (kind === "turn.handoff") this.consider(handoffOf(session, id, data));
    if (ENDS.includes(kind) && waiting?.delete(data.message_id) && waiting.size === 0) this.#unwatch(session);
  }

  /** The server has noted where the user went; without frontiers, it can't. */
  navigated(session, frontiers) {
    if (session !== this.#rules.open) return;
    this.#blind = frontiers === null;
    this.#rules.navigated(frontiers ?? this.#rules.frontiers);
    this.#changed();
    for (const handoff of this.#held.splice(0)) this.consider(handoff);
  }

  /** What was in the open session before is known: `found` is its last result's handoff, or that of the turn that runs. */
  replayed(session, { newest, found }) {
    if (this.#blind) {
      this.#blind = false;
      this.#rules.frontiers = { ...this.#rules.frontiers, [session]: newest };
      this.#changed();
    }
    if (found && this.#looksBack) this.consider(found);
  }

  /** Do what the rules say, of several one after the other: the first that is followed decides about the next. */
  consider(handoff) {
    this.#considered = this.#considered.then(() => this.#act(handoff));
  }

  /** A target is shown only once the server has let us see it, and then only if nothing has changed meanwhile. */
  async #act(handoff) {
    let target;
    for (;;) {
      const [verdict] = this.#rules.decide(handoff);
      if (verdict === "hold") this.#held.push(handoff);
      if (verdict === "offer" || (verdict === "follow" && !this.#looking())) this.#offer(handoff);
      if (verdict !== "follow" || !this.#looking()) return;
      if (target !== undefined) break;
      target = await this.#look(handoff);
    }
    if (target === null) {
      this.#rules.settle(handoff);
      announce(`${handoff.path} can't be opened.`);
      this.#changed();
      return;
    }
    this.#remember(this.#rules.open, target.id);
    this.#rules.followed(handoff);
    this.#following = target.id;
    this.#aloud = true;
    this.#changed();
    this.#show(target);
  }

  /** Go to the session before. */
  back() {
    const gone = (id) => id === this.#rules.open || (this.#sessions.complete && !this.#sessions.all.has(id));
    let id = this.#tab?.trail.pop();
    while (id && gone(id)) id = this.#tab.trail.pop();
    this.#backTo = id ?? null;
    this.#go(id);
  }

  /** Go to the nearest session above. */
  up() {
    this.#go(this.#above(this.#sessions.all.get(this.#rules?.open))?.id);
  }

  /** Go where the offered handoff leads. */
  accept() {
    if (!this.#offered) return;
    this.#rules.settle(this.#offered);
    this.#go(this.#offered.channel_id);
    this.#changed();
  }

  #decline() {
    this.#rules.settle(this.#offered);
    this.#changed();
    byId("transcript").focus();
  }

  #go(id) {
    if (!id) return;
    this.#aloud = true;
    location.hash = `#/s/${part(id)}`;
  }

  /** The target as the server shows it to this visitor now; null if it does not. */
  async #look(handoff) {
    for (;;) {
      try {
        return await call("GET", `/v1/sessions/${part(handoff.channel_id)}`);
      } catch (error) {
        if (!error.passing) return null;
        await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
      }
    }
  }

  #offer(handoff) {
    const from = this.#sessions.all.get(handoff.session);
    this.#offered = handoff;
    const who = from ? [name(from.agent), " at ", name(nameOf(from))] : ["Another session"];
    const offer = el("p", {}, ...who, ` offers to take you to ${handoff.path}.`);
    if (byId("offer").hidden || byId("offer-text").textContent !== offer.textContent) announce(oneLine(offer.textContent));
    byId("offer-text").replaceChildren(...offer.childNodes);
    setText(byId("offer-open"), `Open ${handoff.path}`);
    byId("offer").hidden = false;
  }

  #unwatch(session) {
    this.#watched.delete(session);
    if (session !== this.#rules.open) this.#link.leave(session);
  }

  #remember(before, next) {
    if (before !== null && before !== next) this.#tab.trail.push(before);
  }

  /** Keep what changed, and take back an offer that is none any more. */
  #changed() {
    const { open, handled, frontiers, going } = this.#rules;
    Object.assign(this.#tab, { open, handled, frontiers, going });
    keepTab(this.#tab);
    if (this.#offered && this.#rules.decide(this.#offered)[0] === "ignore") {
      this.#offered = null;
      byId("offer").hidden = true;
    }
    byId("go-back").disabled = this.#tab.trail.length === 0;
  }

  #above(session) {
    if (!session || session.path === "/") return null;
    const known = [...this.#sessions.all.values()];
    if (!session.path && session.parent) return this.#sessions.all.get(session.parent) ?? null;
    const levels = levelsOf(session.path ?? "").reverse().map(({ path }) => path);
    for (const path of levels) {
      const found = known.find((other) => other.path === path);
      if (found) return found;
    }
    return null;
  }

  /** The way from the root to the session, each level a link if a session is there. */
  #draw(session) {
    const at = new Map([...this.#sessions.all.values()].filter((other) => other.path).map((other) => [other.path, other.id]));
    const levels = levelsOf(session.path ?? "").map((level) => ({ ...level, id: at.get(level.path) }));
    const stamp = JSON.stringify([levels, nameOf(session)]);
    byId("go-up").disabled = this.#above(session) === null;
    if (stamp === this.#drawn) return;
    this.#drawn = stamp;
    const last = session.path && session.path !== "/" ? session.path.slice(session.path.lastIndexOf("/") + 1) : nameOf(session);
    byId("where").replaceChildren(
      ...levels.map((level) => el("li", {}, level.id ? el("a", { href: `#/s/${part(level.id)}` }, level.name) : level.name)),
      el("li", { "aria-current": "page" }, name(last)));
  }
}

/** The levels above a path, from the root: {name, path}. */
function levelsOf(path) {
  if (path === "/") return [];
  const segments = path.split("/").slice(1, -1);
  return [{ name: "/", path: "/" }, ...segments.map((name, at) => ({ name, path: `/${segments.slice(0, at + 1).join("/")}` }))];
}
