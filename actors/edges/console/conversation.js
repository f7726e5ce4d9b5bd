// One session as this page knows it: its entries and the turns that run, made of the transcript and of events.
//
// Here: what an event means. Not here: elements (transcript), connections (link), what was sent from here (outbox).
//
// Invariant: entries are keyed by their number and turns by their id, so that whatever comes twice, or from both sides, changes nothing.
// The text of an attempt that was given up is dropped (attempt.relinquished): what stays is what the transcript will say.

import { get, part } from "./api.js";
import { LastResult, handoffOf, isOpen, transcriptResult } from "./handoffs.js";
import { NEWEST } from "./link.js";

const FIRST_WINDOW = 500;
const WIDER = 8;
const PAGE = 200;

/**
 * `onChange(what)` is called after each change: "entries", "turn", "ended" (with the event), "gone"; "handoff" (with it) for one that comes
 * live, and "replayed" (with {newest, found}: the newest event, the handoff of the last result) when what was before is known.
 */
export class Conversation {
  entries = new Map();
  turns = new Map();
  /** How messages ended, by message id: {outcome, reason, error}. */
  endings = new Map();
  loaded = false;
  gone = null;
  #link;
  #onChange;
  #abort = new AbortController();
  #readTo = 0;
  #from = 0;
  #floor = 0;
  #window = 0;
  #probing = true;
  #replayTo = 0;
  #answers = new Set();
  #settling = false;
  #settleAgain = false;
  #last = null;
  /** What a reload has to look at is not in the log, and the transcript is not read yet. */
  #asks = false;

  constructor(session, link, onChange) {
    this.session = session;
    this.#link = link;
    this.#onChange = onChange;
  }

  /** Load the transcript and follow what happens. */
  open() {
    this.#link.follow(this.session.id, NEWEST);
    this.settle();
  }

  /** Stop loading. Whether the link still follows is decided elsewhere. */
  close() {
    this.#abort.abort();
  }

  /** The turn that runs or waits to run again, if there is one. */
  get turn() {
    return [...this.turns.values()].at(-1) ?? null;
  }

  /** A new beginning of the event stream: what lies between is read from the transcript. */
  resync({ after, oldest }) {
    if (this.#probing) {
      this.#probing = false;
      this.#replay(after, oldest);
    } else {
      this.turns.clear();
      this.#onChange("turn");
      this.settle();
    }
  }

  /** An event of this session, each once and in order. */
  event({ id, kind, data }) {
    const live = id > this.#replayTo;
    if (!live) this.#last?.see(id, kind, data);
    this.#apply(kind, data, live);
    if (live && kind === "turn.handoff") this.#onChange("handoff", handoffOf(this.session.id, id, data));
    if (id === this.#replayTo) this.#replayed();
  }

  lost(message) {
    this.gone = message;
    this.#onChange("gone");
  }

  /** Read from the transcript what is not final here, and what is new. */
  async settle() {
    if (this.#settling) {
      this.#settleAgain = true;
      return;
    }
    this.#settling = true;
    try {
      do {
        this.#settleAgain = false;
        await this.#read();
      } while (this.#settleAgain);
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      if (error.code === "unknown_target" || error.status === 404) this.lost(error.message);
      else if (error.passing) setTimeout(() => { if (!this.#abort.signal.aborted) this.settle(); }, 1500);
    } finally {
      this.#settling = false;
    }
  }

  async #read() {
    const address = `/v1/sessions/${part(this.session.id)}/transcript`;
    const { signal } = this.#abort;
    // First what was open here when it was last looked at: a page tells about all that stand near it.
    let seen = 0;
    for (const seq of [...this.entries.values()].filter(isOpen).map((entry) => entry.seq).sort((a, b) => a - b)) {
      if (seq <= seen || seq > this.#readTo) continue;
      const { entries } = await get(address, { after: seq - 1, limit: PAGE }, signal);
      entries.forEach((entry) => this.#put(entry));
      seen = entries.at(-1)?.seq ?? seq;
    }
    const { entries } = await get(address, { after: this.#readTo }, signal);
    for (const entry of entries) {
      this.#put(entry);
      this.#readTo = Math.max(this.#readTo, entry.seq);
    }
    this.loaded = true;
    this.#onChange("entries");
    if (this.#asks) this.#tell(transcriptResult(this.session.id, [...this.entries.values()].sort((a, b) => a.seq - b.seq)));
  }

  /** Follow from a little before the newest event: far enough to know all that the running turn has said. */
  #replay(newest, oldest) {
    this.#window = this.#window ? this.#window * WIDER : FIRST_WINDOW;
    this.#replayTo = newest;
    this.#last = new LastResult(this.session.id);
    this.turns.clear();
    const after = Math.max(0, oldest - 1, newest - this.#window);
    this.#floor = Math.max(0, oldest - 1);
    this.#from = after;
    this.#link.follow(this.session.id, after);
    if (after >= newest) this.#replayed();
  }

  #replayed() {
    const cut = [...this.turns.values()].some((turn) => turn.cut);
    if (cut && this.#from > this.#floor) {
      this.#replay(this.#replayTo, this.#floor + 1);
      return;
    }
    this.#onChange("turn");
    const { known, found } = this.#last;
    this.#asks = !known && !found;
    if (!this.#asks) this.#tell(found);
    this.settle();
  }

  #tell(found) {
    this.#asks = false;
    // What is newer than what was replayed comes as an event.
    this.#onChange("replayed", { newest: this.#replayTo, found: found && found.id <= this.#replayTo ? found : null });
  }

  #apply(kind, data, live) {
    switch (kind) {
      case "message.created":
        // Events have no time: of what comes live it is now, of the rest the transcript knows it.
        this.#put({ ...data, state: this.entries.get(data.seq)?.state ?? "pending", at: live ? new Date().toISOString() : null });
        if (data.content === undefined && live) this.settle();
        this.#onChange("entries");
        return;
      case "turn.completed":
      case "turn.stopped":
      case "turn.failed":
        this.#end(kind, data, live);
        return;
    }
    // What an answered turn had said on its way may still be replayed behind its answer: it is not shown again.
    if (data.turn_id === undefined || this.#answers.has(data.message_id)) return;
    this.#advance(kind, data);
    this.#onChange("turn");
  }

  #advance(kind, data) {
    const turn = this.#turnOf(kind, data);
    switch (kind) {
      case "attempt.claimed":
        Object.assign(turn, { attempt: data.attempt, text: "", state: "working", retryAt: null, detail: null });
        this.#mark(turn.message, "processing");
        break;
      case "turn.token":
        if (data.attempt === turn.attempt) turn.text += data.text;
        if (turn.state === "thinking") turn.state = "working";
        break;
      case "model.request":
        turn.state = "thinking";
        break;
      case "attempt.relinquished":
        Object.assign(turn, { text: "", state: "retrying", retryAt: data.retry_at ?? null, detail: data.detail ?? null, cause: data.cause });
        this.#mark(turn.message, "pending");
        break;
      case "tool.call":
        turn.calls.set(data.action_id, { tool: data.tool, arguments: data.arguments, done: false });
        this.#answered(turn, data.action_id);
        break;
      case "tool.result":
        turn.calls.set(data.action_id, { ...turn.calls.get(data.action_id), tool: data.tool, result: data.result, done: true });
        this.#answered(turn, data.action_id);
        break;
      case "approval.required":
        turn.approvals.set(data.approval_id, { ...data, state: "waiting" });
        break;
      case "turn.waiting":
        turn.state = "waiting";
        break;
      case "turn.reconciling":
        turn.state = "reconciling";
    }
  }

  #turnOf(kind, data) {
    const known = this.turns.get(data.turn_id);
    if (known) return known;
    const turn = {
      id: data.turn_id, message: data.message_id, attempt: data.attempt, text: "", state: "working", retryAt: null, detail: null,
      calls: new Map(), approvals: new Map(), cut: kind !== "turn.started",
    };
    this.turns.set(turn.id, turn);
    return turn;
  }

  /** A call that has run, or was refused, is asked about no more. */
  #answered(turn, action) {
    for (const approval of turn.approvals.values()) {
      if (approval.action_id === action && approval.state === "waiting") approval.state = "answered";
    }
    if (turn.state === "waiting") turn.state = "working";
  }

  #end(kind, data, live) {
    this.turns.delete(data.turn_id);
    this.endings.set(data.message_id, { outcome: data.outcome ?? "failed", reason: data.reason, error: data.error });
    this.#mark(data.message_id, kind === "turn.failed" ? "failed" : "delivered");
    if (data.seq && data.content !== undefined) {
      const sender = { id: this.session.id, label: this.session.agent, kind: "session" };
      const at = live ? new Date().toISOString() : null;
      const { content, handoff, message_id, seq } = data;
      this.#put({ seq, role: "assistant", content, sender, in_reply_to: message_id, state: "delivered", at, handoff });
    }
    this.#onChange("entries");
    this.#onChange("turn");
    // Others may have come to their end with it: messages that it absorbed.
    if (live) {
      this.#onChange("ended", { kind, data });
      this.settle();
    }
  }

  /** The messages of a client here that have no answer yet. */
  unanswered(client) {
    const open = [...this.entries.values()].filter((entry) => isOpen(entry) && entry.message_id?.startsWith(`${client}::`));
    return open.map((entry) => entry.message_id);
  }

  #mark(message, state) {
    for (const entry of this.entries.values()) {
      if (entry.message_id === message && entry.role !== "assistant" && entry.state !== state) this.#put({ ...entry, state });
    }
  }

  #put(entry) {
    const known = this.entries.get(entry.seq);
    if (known && FINAL.has(known.state) && !FINAL.has(entry.state)) return;
    const whole = { ...known, ...entry, at: known?.at ?? entry.at };
    if (known && JSON.stringify(known) === JSON.stringify(whole)) return;
    this.entries.set(entry.seq, whole);
    if (whole.role !== "assistant" || !whole.in_reply_to) return;
    this.#answers.add(whole.in_reply_to);
    for (const turn of this.turns.values()) {
      if (turn.message === whole.in_reply_to) this.turns.delete(turn.id);
    }
  }
}

const FINAL = new Set(["delivered", "failed"]);
