// The inbox: messages of all sessions, newest first, with their stages and what an operator may do. Not here: one message in full (details).
//
// Invariant: at most CARDS_MOST messages are in the page. The newest page is read again while it is looked at; what was opened stays open.

import { get } from "./api.js";
import { cancelButton, detailsOf, requeueButton } from "./details.js";
import { arrange, byId, el, name, named, oneLine, setText, when, words } from "./dom.js";
import { nameOf } from "./sessions.js";

const PAGE = 50;
const CARDS_MOST = 2000;
const PREVIEW_CHARS = 400;

export class Inbox {
  #messages = new Map();
  #cards = new Map();
  #next = null;
  #sessions;
  #busy = 0;

  constructor(sessions) {
    this.#sessions = sessions;
    for (const id of ["inbox-status", "inbox-session"]) {
      byId(id).addEventListener("change", () => { this.#messages.clear(); this.#next = null; this.refresh().catch(() => {}); });
    }
    byId("inbox-filters").addEventListener("submit", (event) => event.preventDefault());
    byId("inbox-more").addEventListener("click", () => this.#older());
  }

  /** Read the newest page again. */
  async refresh() {
    const turn = ++this.#busy;
    const page = await get("/v1/inbox", { ...this.#query(), limit: PAGE });
    if (turn !== this.#busy) return;
    const first = this.#messages.size === 0;
    const oldest = page.messages.at(-1);
    // What was in this part before and has left it (by the filter) goes; older pages stay as they were read.
    for (const [id, message] of this.#messages) {
      if (!page.has_more || (oldest && message.created_at > oldest.created_at)) this.#messages.delete(id);
    }
    for (const message of page.messages) this.#messages.set(message.id, message);
    if (first) this.#next = page.next;
    this.#draw();
  }

  async #older() {
    const turn = ++this.#busy;
    const button = byId("inbox-more");
    button.disabled = true;
    try {
      const page = await get("/v1/inbox", { ...this.#query(), limit: PAGE, cursor: this.#next });
      if (turn !== this.#busy) return;
      for (const message of page.messages) this.#messages.set(message.id, message);
      this.#next = page.next;
      this.#draw();
    } catch {
      setText(button, "That did not work. Try again");
    } finally {
      button.disabled = false;
    }
  }

  #query() {
    return { status: byId("inbox-status").value, target: byId("inbox-session").value };
  }

  #draw() {
    this.#drawSessions();
    const ordered = [...this.#messages.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, CARDS_MOST);
    arrange(byId("inbox-list"), ordered.map((message) => this.#card(message)));
    const kept = new Set(ordered.map((message) => message.id));
    for (const id of this.#cards.keys()) if (!kept.has(id)) this.#cards.delete(id);
    byId("inbox-empty").hidden = ordered.length > 0;
    byId("inbox-more").hidden = !this.#next || ordered.length >= CARDS_MOST;
    setText(byId("inbox-more"), "Show older messages");
  }

  #drawSessions() {
    const select = byId("inbox-session");
    const wanted = [...this.#sessions.all.values()].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1)).slice(0, 500);
    const have = [...select.options].slice(1);
    if (have.length === wanted.length && wanted.every((session, at) => have[at].value === session.id)) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...wanted.map((session) => el("option", { value: session.id }, oneLine(nameOf(session)))));
    select.value = chosen;
    if (select.value !== chosen) select.value = "";
  }

  #card(message) {
    const known = this.#cards.get(message.id);
    const stamp = JSON.stringify([message.status, message.updated_at, message.attempts]);
    if (known?.stamp === stamp) return known.node;
    const node = known?.node ?? el("li", { class: "card" });
    const opened = node.querySelector("details")?.open;
    node.dataset.state = message.status;
    node.replaceChildren(...this.#parts(message));
    if (opened) node.querySelector("details").open = true;
    this.#cards.set(message.id, { stamp, node });
    return node;
  }

  #parts(message) {
    const session = this.#sessions.all.get(message.session);
    const short = message.content.length > PREVIEW_CHARS ? `${message.content.slice(0, PREVIEW_CHARS)}…` : message.content;
    const head = el("p", { class: "card-head" },
      el("span", { class: "who" }, named(message.sender)), " to ",
      el("a", { href: `#/s/${encodeURIComponent(message.session)}` }, name(session ? nameOf(session) : message.session)), when(message.created_at));
    const foot = el("div", { class: "card-foot" }, stages(message));
    if (message.reason || message.last_error) {
      foot.append(el("p", { class: "why" }, [message.reason && words(message.reason), message.last_error].filter(Boolean).join(": ")));
    }
    const actions = el("div", { class: "card-actions" });
    const again = () => this.refresh().catch(() => {});
    if (message.status === "failed") actions.append(requeueButton(message.id, again));
    if (message.status === "pending") actions.append(cancelButton(message.id, again));
    actions.append(detailsOf(message.id));
    return [head, el("div", { class: "text" }, short), foot, actions];
  }
}

/** The way of a message as a list: accepted, claimed, and how it ended or where it is. */
function stages(message) {
  const end = { pending: message.attempts ? "waits for its next attempt" : "waiting", processing: "working",
    delivered: words(message.outcome ?? "delivered"), failed: "failed" }[message.status];
  const steps = [["accepted", "done"], ["claimed", message.stages.leased ? "done" : "open"], [end, message.status]];
  return el("ol", { class: "stages", "aria-label": "Stages" },
    ...steps.map(([text, state]) => el("li", { "data-state": state }, text)));
}
