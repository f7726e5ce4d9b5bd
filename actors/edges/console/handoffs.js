// When a handoff moves the user: the same rules as in the client library, for one tab. Pure: what happened in, a decision out.
//
// Here: the rules, and what a reload looks at. Not here: carrying a decision out (here), what is kept over a reload (tab).
//
// Invariant: an event moves this tab once at most, never to undo what its user did after it, and never from a session that isn't open.

const HANDLED_MOST = 256;
const POSTED = /^(.{1,64})::[0-9a-f]{32}$/;

/** A message id that says which client has posted: a handoff that answers it is that client's to follow. */
export const postId = (client) => `${client}::${hex(16)}`;

/** So many random bytes as hex digits; also in pages that are no secure context, where randomUUID is missing. */
export const hex = (bytes) => [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** The handoff in an event `turn.handoff` of `session`; `by` is the client whose message it answers, null for any other. */
export function handoffOf(session, id, data) {
  const by = POSTED.exec(data.message_id ?? "")?.[1] ?? null;
  return { session, id, path: data.path, channel_id: data.channel_id, confirm: data.confirm === true, by };
}

/** The handoff in a turn's result, an answer's entry or the event that ends the turn; `message` is what the turn answered. Null if none. */
export function resultOf(session, { handoff }, message) {
  return handoff ? handoffOf(session, handoff.event_id, { ...handoff, message_id: message }) : null;
}

/**
 * The handoff in the newest answer of a transcript, whose entries these are, in order; null if it is not the last result: a turn that was
 * stopped, failed or said nothing has left no answer, and is seen by its message, which waits no longer.
 */
export function transcriptResult(session, entries) {
  const last = entries.findLast((entry) => !isOpen(entry));
  return last?.role === "assistant" ? resultOf(session, last, last.in_reply_to) : null;
}

/** Whether a message is still to come to its end. */
export const isOpen = (entry) => entry.state === "pending" || entry.state === "processing";

const keyOf = (handoff) => `${handoff.session} ${handoff.id}`;

/** What one client knows of where its user is. `open` is the open session; `frontiers` what `navigate` answered last. */
export class Rules {
  open = null;
  frontiers = {};
  /** Where the user went last is not noted yet. */
  going = false;
  #client;
  #handled;

  constructor(client, handled = []) {
    this.#client = client;
    this.#handled = new Set(handled);
  }

  /** What was acted upon, oldest first. */
  get handled() {
    return [...this.#handled];
  }

  /** What to do about it now: [verdict, why]; verdicts are follow, offer, ignore and hold. */
  decide(handoff) {
    if (this.#handled.has(keyOf(handoff))) return ["ignore", "handled"];
    if (handoff.id <= (this.frontiers[handoff.session] ?? 0)) return ["ignore", "older"];
    if (this.going) return ["hold", "going"];
    if (handoff.channel_id === this.open) return ["ignore", "there"];
    if (handoff.session !== this.open) return ["offer", "elsewhere"];
    if (handoff.confirm) return ["offer", "confirm"];
    if (handoff.by !== null && handoff.by !== this.#client) return ["offer", "other"];
    return ["follow", "open"];
  }

  /** The user goes to a session; until `navigated`, nothing is decided. */
  navigate(session) {
    this.open = session;
    this.going = true;
  }

  /** The server has noted where the user went: the newest event of each session at that moment. */
  navigated(frontiers) {
    this.frontiers = frontiers;
    this.going = false;
  }

  /** Its target is the open session now. */
  followed(handoff) {
    this.open = handoff.channel_id;
    this.settle(handoff);
  }

  /** It was acted upon: followed, accepted, declined, or found to lead nowhere. */
  settle(handoff) {
    this.#handled.add(keyOf(handoff));
    while (this.#handled.size > HANDLED_MOST) this.#handled.delete(this.#handled.values().next().value);
  }
}

/**
 * What a reload has to look at in a session's log: the handoff of the turn that runs, or else what the last result there says.
 * See events in order. `known` says that there is a result; if none is, the transcript may have it (`transcriptResult`).
 */
export class LastResult {
  known = false;
  #session;
  #turn = null;
  #running = null;
  #result = null;

  constructor(session) {
    this.#session = session;
  }

  get found() {
    return this.#running ?? this.#result;
  }

  see(id, kind, data) {
    if (kind === "turn.handoff") {
      this.#turn = data.turn_id;
      this.#running = handoffOf(this.#session, id, data);
    } else if (kind === "turn.failed" && data.turn_id === this.#turn) {
      this.#running = null; // it has no result
    } else if (kind === "turn.completed" || kind === "turn.stopped") {
      this.known = true;
      this.#running = null;
      this.#result = resultOf(this.#session, data, data.message_id);
    }
  }
}
