// The console: what is looked at, and what is asked for while it is. Parts: here, sessions, transcript, inbox, tree, health; each its own
// module.
//
// Invariant: everything here can be thrown away at any moment: a reload, or a second tab, shows the same from the server's rows.

import { actIn, call, part, post } from "./api.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { announce, byId, el, oneLine, setNames, setText } from "./dom.js";
import { Health } from "./health.js";
import { Here } from "./here.js";
import { Inbox } from "./inbox.js";
import { bindKeys } from "./keys.js";
import { Link } from "./link.js";
import { Outbox } from "./outbox.js";
import { Sessions, nameOf } from "./sessions.js";
import { Transcript } from "./transcript.js";
import { Tree } from "./tree.js";

const SESSIONS_MS = 2000;
const HEALTH_MS = 5000;
const GONE_MS = 1000;
const VIEW_MS = 2000;
const HIDDEN_MS = 20000;
const WIDE = "(min-width: 860px)";
const VIEWS = ["sessions", "inbox", "supervisors"];

let conversation = null;
let transcript = null;
let view = "sessions";
let chosen = null;

let me = null;

const link = new Link(
  {
    event: (event) => (conversation?.session.id === event.session ? conversation.event(event) : here.aside(event)),
    resync: (resync) => conversation?.resync(resync),
    gone: (message) => conversation?.lost(message),
    aside: (event) => here.aside(event),
    navigated: (session, frontiers) => here.navigated(session, frontiers),
  },
  (state) => {
    health.link(state);
    if (state === "gone") health.refresh().then(() => transcript?.draw());
  },
  // A websocket's handshake can't name a project, so who has several brings a ticket that does.
  async () => (me?.several ? (await post("/v1/tickets", { kind: "ws" })).ticket : null),
  () => health.refresh().then(() => health.reachable),
);
const health = new Health(back, () => link.halt());
const outbox = new Outbox((session) => { if (conversation?.session.id === session) transcript?.draw(); });
const sessions = new Sessions(listed);
const here = new Here(link, sessions, follow, () => view === "sessions");
const inbox = new Inbox(sessions);
const tree = new Tree();
const composer = new Composer((content) => {
  outbox.send(conversation.session.id, content);
  transcript.toNewest();
});

/** Ask again and again, sooner or later by what `pause` says; never twice at a time, and not while nobody looks. */
function repeat(ask, pause) {
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    timer = 0;
    if (!document.hidden && !health.signedOut) await ask().catch(() => {});
    timer ||= setTimeout(run, pause());
  };
  return run;
}

const lookAtHealth = repeat(() => health.refresh(), () => (health.well ? HEALTH_MS : GONE_MS));
const lookAtSessions = repeat(() => sessions.refresh(), () => SESSIONS_MS);
const lookAtView = repeat(async () => {
  if (view === "inbox") await inbox.refresh();
  if (view === "supervisors") await tree.refresh().catch(() => tree.stale());
}, () => VIEW_MS);

/** The server answers again. */
function back() {
  outbox.push();
  link.reconnect();
  lookAtSessions();
  lookAtView();
}

/** The list of sessions was read: what is shown of the chosen one may have to change, or can be shown now. */
function listed() {
  if (chosen && !conversation && sessions.all.has(chosen)) show(chosen);
  if (!chosen && view === "sessions" && matchMedia(WIDE).matches && location.hash.length < 2) {
    const root = [...sessions.all.values()].find((session) => session.path === "/");
    if (root) {
      history.replaceState(null, "", `#/s/${part(root.id)}`);
      route(true);
    }
  }
  if (conversation) headline(sessions.all.get(chosen) ?? conversation.session);
}

function headline(session) {
  here.shown(session);
  setText(byId("conversation-title"), nameOf(session));
  setNames(byId("conversation-about"), [session.title && session.path ? session.title : "", session.agent, session.status].filter(Boolean));
  document.title = view === "sessions" && chosen ? titled(session) : "Callboard";
}

const titled = (session) => `${oneLine(nameOf(session))} · Callboard`;

/** Show where a handoff leads. What was being written is kept for the session that is left. */
function follow(session) {
  const writing = document.activeElement === byId("text");
  sessions.all.set(session.id, session);
  history.pushState(null, "", `#/s/${part(session.id)}`);
  route();
  if (writing) composer.focus();
}

/** Open a session; null opens none. `starts`: the page itself does, with nobody's doing. */
function choose(id, starts) {
  if (conversation && conversation.session.id !== id) {
    const mine = [...conversation.unanswered(here.client), ...outbox.of(conversation.session.id).map((item) => item.id)];
    here.left(conversation.session.id, mine);
  }
  chosen = id;
  here.enter(id, starts);
  show(id);
}

/** Show the chosen session, as soon as it is known. */
function show(id) {
  sessions.choose(id);
  conversation?.close();
  transcript?.close();
  conversation = transcript = null;
  document.body.dataset.chosen = id ? "yes" : "no";
  composer.close();
  byId("stop").hidden = true;
  byId("jump").hidden = true;
  byId("transcript").replaceChildren();
  setText(byId("conversation-title"), id ? "Loading…" : "No session chosen");
  setText(byId("conversation-about"), "");
  byId("where").hidden = !id;
  const session = sessions.all.get(id);
  if (!session) {
    if (id) find(id);
    return;
  }
  const opened = new Conversation(session, link, (what, event) => { if (conversation === opened) changed(what, event); });
  conversation = opened;
  transcript = new Transcript(opened, outbox, (content) => composer.edit(content), () => me?.name ?? "You");
  headline(session);
  composer.open(id);
  opened.open();
}

/** A session that the list does not have: an address that was kept. */
async function find(id) {
  try {
    const session = await call("GET", `/v1/sessions/${part(id)}`);
    sessions.all.set(id, session);
    if (chosen === id && !conversation) show(id);
  } catch (error) {
    if (chosen === id && !conversation && !error.passing) setText(byId("conversation-title"), "There is no such session");
  }
}

function changed(what, event) {
  transcript.draw();
  if (what === "gone") {
    composer.close();
    sessions.forget(chosen);
  }
  if (what === "handoff") here.consider(event);
  if (what === "replayed") here.replayed(conversation.session.id, event);
  if (what !== "ended") return;
  lookAtSessions();
  const { kind, data } = event;
  const who = conversation.session.agent;
  if (kind === "turn.failed") announce(`${who} failed: ${data.error || data.reason || "unknown"}`);
  else if (data.content) announce(`${who}: ${data.content}`);
  else announce(kind === "turn.stopped" ? `${who} was stopped.` : `${who} is done.`);
}

function route(starts = false) {
  const [, first, second] = location.hash.split("/");
  const id = first === "s" && second ? decoded(second) : null;
  const next = VIEWS.includes(first) ? first : "sessions";
  const moved = next !== view;
  view = next;
  document.body.dataset.view = view;
  for (const anchor of document.querySelectorAll("nav.views a")) {
    if (anchor.dataset.view === view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (view === "sessions") {
    if (id !== chosen) choose(id, starts);
    document.title = conversation ? titled(conversation.session) : "Callboard";
  } else {
    document.title = `${view === "inbox" ? "Inbox" : "Supervisors"} · Callboard`;
    if (moved) byId(`${view}-heading`).focus({ preventScroll: true });
  }
  lookAtView();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

async function stop() {
  const button = byId("stop");
  if (button.hidden || button.disabled || !conversation) return;
  button.disabled = true;
  setText(button, "Stopping…");
  const asked = conversation;
  try {
    await post(`/v1/sessions/${part(asked.session.id)}/stop`);
    announce("Stopping.");
  } catch (error) {
    announce(`Not stopped: ${error.message}`);
  } finally {
    setTimeout(() => { button.disabled = false; setText(button, "Stop"); }, 800);
  }
}

function go(step) {
  const session = sessions.neighbour(step);
  if (session) location.hash = `#/s/${part(session.id)}`;
}

byId("stop").addEventListener("click", stop);
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
byId("sign-out").addEventListener("click", async () => {
  await post("/v1/logout").catch(() => {});
  location.reload();
});

bindKeys([
  [["c"], "Write a message", () => { if (view === "sessions") composer.focus(); }],
  [["j"], "Next session", () => go(1)],
  [["k"], "Previous session", () => go(-1)],
  [["b"], "Back to the session before", () => here.back()],
  [["u"], "Up to the session above", () => here.up()],
  [["o"], "Open what is offered", () => here.accept()],
  [["x"], "Stop the turn that runs", stop],
  [["e"], "Scroll to the newest", () => transcript?.toNewest()],
  [["f"], "Filter sessions", () => {
    location.hash = matchMedia(WIDE).matches && chosen ? `#/s/${part(chosen)}` : "#/sessions";
    route();
    byId("session-filter").focus();
  }],
  [["1"], "Sessions", () => { location.hash = chosen ? `#/s/${part(chosen)}` : "#/sessions"; }],
  [["2"], "Inbox", () => { location.hash = "#/inbox"; }],
  [["3"], "Supervisors", () => { location.hash = "#/supervisors"; }],
]);

let hiddenAt = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiddenAt = Date.now();
    return;
  }
  // A phone that slept may hold a connection that died without a word.
  if (Date.now() - hiddenAt > HIDDEN_MS) link.reconnect();
  lookAtHealth();
  lookAtSessions();
  lookAtView();
  transcript?.draw();
});
addEventListener("online", () => { lookAtHealth(); link.reconnect(); });

/** Learn who looks, then look. */
async function begin() {
  try {
    me = await call("GET", "/v1/whoami");
  } catch (error) {
    if (error.passing) setTimeout(begin, GONE_MS);
    return;
  }
  document.body.dataset.kind = me.kind;
  me.several = me.project === null;
  if (me.several) chooseProject();
  outbox.sendAs(await here.begin());
  addEventListener("hashchange", () => route());
  lookAtHealth();
  lookAtSessions();
  route(true);
}

/** Who takes part in several projects looks at one at a time; a change begins anew. */
function chooseProject() {
  const select = byId("project");
  const kept = sessionStorage.getItem("callboard.project");
  const current = me.projects.includes(kept) ? kept : me.projects[0];
  select.replaceChildren(...me.projects.map((name) => el("option", { value: name }, name)));
  select.value = current;
  byId("project-box").hidden = false;
  actIn(current);
  select.addEventListener("change", () => {
    sessionStorage.setItem("callboard.project", select.value);
    location.hash = "#/sessions";
    location.reload();
  });
}

begin();
