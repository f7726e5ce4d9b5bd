// The live connection: the open session's events by cursor, and those of a few that were left before they had answered, over a websocket;
// or the open session's alone, over server-sent events where no websocket can be had.
//
// Here: connecting, back-off, cursors, noting where the user goes. Not here: what events mean (conversation), where that is (here).
//
// Invariant: a cursor moves only with events that were handed on, so a new connection asks for exactly what is missing.

const KINDS = [
  "message.created", "turn.started", "attempt.claimed", "model.request", "turn.token", "tool.call", "tool.result", "turn.waiting",
  "approval.required", "attempt.relinquished", "turn.handoff", "turn.completed", "turn.failed", "turn.stopped", "turn.reconciling",
];
const FIRST_MS = 300;
const LONGEST_MS = 8000;
const OPEN_MS = 10000;
const TRIES_BEFORE_SSE = 3;
const OPEN = 1;
const ANSWERS = ["subscribed", "navigated", "error"];
/** Above every event's id: the server says at once what the newest is. */
export const NEWEST = Number.MAX_SAFE_INTEGER;

/** `sink` has event(event), resync({after, oldest}), gone(message) for the open session, aside(event), navigated(session, frontiers). */
export class Link {
  /** What this page calls itself at the handshake. */
  client = null;
  #sink;
  #open = null;
  /** session → the cursor, of each that is followed. */
  #cursors = new Map();
  /** session → what was asked on this connection and is not answered, in order: "subscribe" or "navigate". */
  #asked = new Map();
  #going = null;
  #socket = null;
  #source = null;
  #timer = null;
  #failures = 0;
  #sse = typeof WebSocket === "undefined";
  #halted = false;
  #opening = 0;
  #refused = 0;
  #onState;
  #ticket;
  #answers;

  /**
   * `onState(state)`: connecting, live or gone (another try follows). `ticket()`: what a handshake needs beside the cookie, or null.
   * `answers()`: whether the server answers a plain request now.
   */
  constructor(sink, onState, ticket, answers) {
    this.#sink = sink;
    this.#onState = onState;
    this.#ticket = ticket;
    this.#answers = answers;
  }

  /** Follow `session`, the open one from now on, from above the event `after`. What was followed before is still, until it is left. */
  follow(session, after) {
    const known = this.#cursors.has(session);
    this.#open = session;
    this.#cursors.set(session, after);
    this.#halted = false;
    if (this.#socket?.readyState === OPEN) {
      if (known) this.#say({ type: "unsubscribe", session });
      this.#subscribe(session);
    } else if (this.#source || !this.#socket) {
      this.reconnect();
    }
  }

  /** Follow it no longer. */
  leave(session) {
    if (this.#cursors.delete(session) && this.#socket?.readyState === OPEN) this.#say({ type: "unsubscribe", session });
  }

  /** Have the server note where the user goes, now or when there is a connection: `navigated` tells. What is followed later comes behind it. */
  navigate(session) {
    this.#going = session;
    if (this.#socket?.readyState === OPEN) this.#ask("navigate", { type: "navigate", session });
    else if (this.#sse) this.#unnoted();
  }

  /** Connect anew now: the old connection may be dead without having said so. */
  reconnect() {
    if (this.#halted) return;
    this.#drop();
    if (this.#open === null) return;
    this.#onState("connecting");
    if (this.#sse) this.#openSource();
    else this.#openSocket();
  }

  /** End the connection and try no more until the next `follow`. */
  halt() {
    this.#halted = true;
    this.#drop();
  }

  async #openSocket() {
    const address = new URL("/v1/live", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const number = ++this.#opening;
    try {
      const ticket = await this.#ticket();
      if (number !== this.#opening || this.#socket) return;
      if (ticket !== null) address.searchParams.set("ticket", ticket);
      if (this.client !== null) address.searchParams.set("client", this.client);
    } catch {
      if (number === this.#opening) this.#retry();
      return;
    }
    const socket = new WebSocket(address, ["callboard.v1"]);
    this.#socket = socket;
    let opened = false;
    const impatience = setTimeout(() => socket.close(), OPEN_MS);
    socket.onopen = () => {
      opened = true;
      clearTimeout(impatience);
      this.#refused = 0;
      this.#asked.clear();
      if (this.#going !== null) this.#ask("navigate", { type: "navigate", session: this.#going });
      for (const session of this.#cursors.keys()) this.#subscribe(session);
    };
    socket.onmessage = (message) => {
      if (this.#socket === socket) this.#hear(JSON.parse(message.data));
    };
    socket.onclose = () => {
      clearTimeout(impatience);
      if (this.#socket !== socket) return;
      this.#socket = null;
      if (!opened) this.#blame();
      this.#retry();
    };
  }

  /** A websocket did not open. Only if the server answers otherwise it is something between that lets none through. */
  async #blame() {
    if (!(await this.#answers())) return;
    this.#refused += 1;
    if (this.#refused >= TRIES_BEFORE_SSE) this.#sse = true;
  }

  #openSource() {
    const session = this.#open;
    if (this.#going !== null) this.#unnoted();
    const address = `/v1/sessions/${encodeURIComponent(session)}/events?after=${this.#cursors.get(session) ?? NEWEST}`;
    const source = new EventSource(address);
    this.#source = source;
    const take = (kind) => (event) => {
      if (this.#source !== source) return;
      this.#live();
      this.#hear({ type: "event", session, kind, id: Number(event.lastEventId), data: JSON.parse(event.data) });
    };
    for (const kind of KINDS) source.addEventListener(kind, take(kind));
    source.addEventListener("resync", (event) => {
      if (this.#source === source) this.#hear({ type: "resync", session, ...JSON.parse(event.data) });
    });
    source.onopen = () => this.#live();
    source.onerror = () => {
      if (this.#source !== source) return;
      // Not left to the browser: it gives up after an error status, and its pause is not told.
      source.close();
      this.#source = null;
      this.#sse = typeof WebSocket === "undefined";
      this.#refused = TRIES_BEFORE_SSE - 1;
      this.#retry();
    };
  }

  #hear(frame) {
    const { type, session } = frame;
    const answered = ANSWERS.includes(type) && frame.code !== "not_subscribed" ? this.#answered(session) : null;
    if (type === "navigated" && session === this.#going && !this.#waits(session, "navigate")) {
      this.#going = null;
      this.#sink.navigated(session, frame.frontiers);
    } else if (type === "subscribed") {
      this.#live();
    } else if (type === "error" && frame.code !== "not_subscribed") {
      this.#failed(frame, answered);
    } else if (type === "event" || type === "resync") {
      // Of the subscription before, it would move the cursor past what the new one is about to send; or the session was left meanwhile.
      if (this.#cursors.has(session) && !this.#waits(session, "subscribe")) this.#take(frame);
    }
  }

  #take(frame) {
    const { type, session } = frame;
    const ours = session === this.#open;
    if (type === "resync") {
      this.#cursors.set(session, frame.after);
      if (ours) this.#sink.resync(frame);
    } else if (frame.id > this.#cursors.get(session)) {
      this.#cursors.set(session, frame.id);
      if (ours) this.#sink.event(frame);
      else this.#sink.aside(frame);
    }
  }

  #failed({ code, session, message }, asked) {
    if (code !== "unknown_target") {
      this.#socket?.close();
    } else if (asked === "navigate") {
      if (session === this.#going) this.#unnoted();
    } else if (session === this.#open) {
      this.#sink.gone(message);
    } else {
      this.#cursors.delete(session);
    }
  }

  /** Nothing can note where the user went: a session that is gone, or no websocket. */
  #unnoted() {
    const session = this.#going;
    this.#going = null;
    queueMicrotask(() => this.#sink.navigated(session, null));
  }

  /** What of a session was answered: the first that was asked. */
  #answered(session) {
    return this.#asked.get(session)?.shift() ?? null;
  }

  #waits(session, what) {
    return this.#asked.get(session)?.includes(what) ?? false;
  }

  #live() {
    this.#failures = 0;
    this.#onState("live");
  }

  #retry() {
    const longest = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.#failures);
    this.#failures += 1;
    // Spread out: a server that comes back is not met by all its pages in one moment.
    const pause = longest * (0.5 + Math.random() / 2);
    this.#onState("gone");
    this.#timer = setTimeout(() => this.reconnect(), pause);
  }

  #drop() {
    clearTimeout(this.#timer);
    this.#opening += 1;
    const [socket, source] = [this.#socket, this.#source];
    this.#socket = this.#source = null;
    socket?.close();
    source?.close();
  }

  #subscribe(session) {
    this.#ask("subscribe", { type: "subscribe", session, after: this.#cursors.get(session) });
  }

  #ask(what, frame) {
    if (!this.#asked.has(frame.session)) this.#asked.set(frame.session, []);
    this.#asked.get(frame.session).push(what);
    this.#say(frame);
  }

  #say(frame) {
    this.#socket.send(JSON.stringify(frame));
  }
}
