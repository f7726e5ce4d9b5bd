// The list of sessions, in the order of the path tree, with the levels that have no session. Here: loading, order, the filter. Not here: the
// conversation of the chosen one.
//
// Invariant: the list holds at most SESSIONS_MOST sessions and shows ROWS of them at a time; what is left out is said.

import { get } from "./api.js";
import { arrange, byId, el, setNames, setText } from "./dom.js";

const SESSIONS_MOST = 5000;
const PAGE = 200;
const ROWS = 300;
const WHOLE_MS = 60000;

export class Sessions {
  all = new Map();
  complete = true;
  #rows = new Map();
  #levels = new Map();
  #list = byId("session-list");
  #filter = byId("session-filter");
  #note = el("p", { class: "muted note" });
  #more = el("button", { type: "button", class: "more", onclick: () => { this.#limit += ROWS; this.draw(); } }, "Show more");
  #limit = ROWS;
  #chosen = null;
  #wholeAt = 0;
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
    this.#filter.addEventListener("input", () => { this.#limit = ROWS; this.draw(); });
  }

  /** Read what has changed; everything once a minute, as a list by change tells nothing of what was deleted. */
  async refresh() {
    const whole = Date.now() - this.#wholeAt > WHOLE_MS;
    const found = new Map();
    let cursor = null;
    do {
      const page = await get("/v1/sessions", { limit: PAGE, cursor });
      for (const session of page.sessions) found.set(session.id, session);
      cursor = page.next;
      const last = page.sessions.at(-1);
      if (!whole && last && this.all.get(last.id)?.updated === last.updated) break;
    } while (cursor && found.size < SESSIONS_MOST);
    if (whole) {
      this.complete = !cursor;
      this.#wholeAt = Date.now();
    }
    this.all = whole ? found : new Map([...this.all, ...found]);
    this.draw();
    this.#onChange();
  }

  /** Read everything at the next refresh. */
  forget(id) {
    this.all.delete(id);
    this.#wholeAt = 0;
    this.draw();
  }

  choose(id) {
    this.#chosen = id;
    this.draw();
  }

  /** The session before (-1) or behind (1) the chosen one, as they are shown. */
  neighbour(step) {
    const shown = this.#visible().map(({ session }) => session);
    const at = shown.findIndex((session) => session.id === this.#chosen);
    return shown[at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + step))] ?? null;
  }

  draw() {
    const visible = this.#visible();
    const shown = visible.slice(0, this.#limit);
    const nodes = this.#withLevels(shown);
    const kept = new Set(shown.map(({ session }) => session.id));
    for (const id of this.#rows.keys()) if (!kept.has(id)) this.#rows.delete(id);
    setText(this.#note, this.all.size === 0 ? "No sessions yet."
      : visible.length === 0 ? "No session matches."
      : shown.length < visible.length ? `${shown.length} of ${visible.length} shown.`
      : this.complete ? "" : `The ${SESSIONS_MOST.toLocaleString()} newest are listed.`);
    arrange(this.#list, [...nodes, ...(this.#note.textContent ? [this.#note] : []), ...(shown.length < visible.length ? [this.#more] : [])]);
  }

  /** The rows, each path's behind the levels above it that have no row themselves. */
  #withLevels(shown) {
    const known = new Set(shown.map(({ session }) => session.path));
    const nodes = [];
    for (const { session, depth } of shown) {
      const segments = session.path?.split("/").slice(1, -1) ?? [];
      segments.forEach((name, at) => {
        const path = `/${segments.slice(0, at + 1).join("/")}`;
        if (known.has(path)) return;
        known.add(path);
        nodes.push(this.#level(path, at));
      });
      nodes.push(this.#row(session, depth));
    }
    return nodes;
  }

  #level(path, depth) {
    if (!this.#levels.has(path)) this.#levels.set(path, el("p", { class: "level", "data-depth": Math.min(depth, 4) }, path));
    return this.#levels.get(path);
  }

  #visible() {
    const wanted = this.#filter.value.trim().toLowerCase();
    const ordered = inTreeOrder([...this.all.values()]);
    if (!wanted) return ordered;
    return ordered.filter(({ session }) => `${session.path ?? ""} ${session.title} ${session.agent}`.toLowerCase().includes(wanted));
  }

  #row(session, depth) {
    let row = this.#rows.get(session.id);
    if (!row) {
      const [name, about, dot] = [el("span", { class: "row-name" }), el("span", { class: "row-about muted" }), el("span", { class: "row-state" })];
      row = { name, about, dot, node: el("a", { class: "row", href: `#/s/${encodeURIComponent(session.id)}` }, name, dot, about) };
      this.#rows.set(session.id, row);
    }
    setText(row.name, nameOf(session));
    setNames(row.about, [session.title && session.path ? session.title : "", session.agent].filter(Boolean));
    setText(row.dot, session.status);
    row.dot.dataset.state = session.status;
    row.node.dataset.depth = Math.min(depth, 4);
    if (session.id === this.#chosen) row.node.setAttribute("aria-current", "page");
    else row.node.removeAttribute("aria-current");
    return row.node;
  }
}

/** What a session is called: its path, else its title. */
export const nameOf = (session) => session.path ?? (session.title || `${session.kind} ${session.id.slice(-6)}`);

/** Sessions with their depth: paths in order, each with its children (who have no path) below it, then what is left. */
function inTreeOrder(sessions) {
  const children = new Map();
  for (const session of sessions) {
    if (!children.has(session.parent)) children.set(session.parent, []);
    children.get(session.parent).push(session);
  }
  const ids = new Set(sessions.map((session) => session.id));
  const ordered = [];
  const seen = new Set();
  const put = (session, depth) => {
    if (seen.has(session.id)) return;
    seen.add(session.id);
    ordered.push({ session, depth });
    const below = (children.get(session.id) ?? []).filter((child) => !child.path);
    for (const child of below.sort((a, b) => (a.updated < b.updated ? 1 : -1))) put(child, depth + 1);
  };
  const depthOf = (path) => (path === "/" ? 0 : path.split("/").length - 2);
  const keyOf = (path) => path.split("/").join("\u0000");
  const pathed = sessions.filter((session) => session.path);
  for (const session of pathed.sort((a, b) => (keyOf(a.path) < keyOf(b.path) ? -1 : 1))) put(session, depthOf(session.path));
  for (const session of sessions) if (!session.parent || !ids.has(session.parent)) put(session, 0);
  for (const session of sessions) put(session, 0);
  return ordered;
}
