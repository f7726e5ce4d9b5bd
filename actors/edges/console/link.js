// The live connection: one session's events by cursor, over a websocket, or over server-sent events where none can be had.
//
// Here: connecting, back-off, the cursor. Not here: what events mean (conversation).
//
// Invariant: the cursor moves only with events that were handed on, so a new connection asks for exactly what is missing.

const KINDS = [
  "message.created", "turn.started", "attempt.claimed", "model.request", "turn.token", "tool.call", "tool.result", "turn.waiting",
  "approval.required", "attempt.relinquished", "turn.handoff", "turn.completed", "turn.failed", "turn.stopped", "turn.reconciling",
];
const FIRST_MS = 300;
const LONGEST_MS = 8000;
const OPEN_MS = 10000;
const TRIES_BEFORE_SSE = 3;
const OPEN = 1;
/** Above every event's id: the server says at once what the newest is. */
export const NEWEST = Number.MAX_SAFE_INTEGER;

/** Follows one session at a time. `sink` has event(event), resync({after, oldest}), gone(message). */
export class Link {
  #sink;
  #session = null;
  #cursor = 0;
  #socket = null;
  #source = null;
  #timer = null;
  #failures = 0;
  #sse = typeof WebSocket === "undefined";
  #halted = false;
  #unconfirmed = 0;
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

  get session() {
    return this.#session;
  }

  /** Follow `session` from above the event `after`; what was followed before is left. */
  follow(session, after) {
    const before = this.#session;
    this.#session = session;
    this.#cursor = after;
    this.#halted = false;
    if (this.#socket?.readyState === OPEN) {
      if (before !== null) this.#say({ type: "unsubscribe", session: before });
      this.#subscribe();
    } else if (this.#source || !this.#socket) {
      this.reconnect();
    }
  }

  /** Connect anew now: the old connection may be dead without having said so. */
  reconnect() {
    if (this.#halted) return;
    this.#drop();
    if (this.#session === null) return;
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
      this.#unconfirmed = 0;
      this.#subscribe();
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
    const session = this.#session;
    const address = `/v1/sessions/${encodeURIComponent(session)}/events?after=${this.#cursor}`;
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
    // Each subscription is answered once, in order, also that of a session which was left meanwhile.
    if (frame.type === "subscribed" || frame.type === "error") this.#unconfirmed = Math.max(0, this.#unconfirmed - 1);
    // What was under way when another session was chosen.
    if (frame.session !== undefined && frame.session !== this.#session) return;
    switch (frame.type) {
      case "subscribed":
        this.#live();
        break;
      case "event":
        // Of the subscription before: it would move the cursor past what the new one is about to send.
        if (this.#unconfirmed > 0 || frame.id <= this.#cursor) break;
        this.#cursor = frame.id;
        this.#sink.event(frame);
        break;
      case "resync":
        if (this.#unconfirmed > 0) break;
        this.#cursor = frame.after;
        this.#sink.resync(frame);
        break;
      case "error":
        if (frame.code === "unknown_target") this.#sink.gone(frame.message);
        else if (frame.code !== "not_subscribed") this.#socket?.close();
    }
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

  #subscribe() {
    this.#unconfirmed += 1;
    this.#say({ type: "subscribe", session: this.#session, after: this.#cursor });
  }

  #say(frame) {
    this.#socket.send(JSON.stringify(frame));
  }
}
