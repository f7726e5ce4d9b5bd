// What was sent from this tab and is not yet known to be accepted.
//
// Here: ids, keeping, sending again. Not here: how it looks (transcript, composer).
//
// Invariant: a text has one message id from the moment of sending on; it is sent under that id until the server has answered, also after a
// reload and a restart of the server. The server makes one message of it, however often it arrives.

import { part, post } from "./api.js";
import { postId } from "./handoffs.js";

const STORE = "callboard.outbox";
const FIRST_MS = 500;
const LONGEST_MS = 5000;

export class Outbox {
  #items;
  #timer = null;
  #failures = 0;
  #sending = false;
  #client = "web";
  #onChange;

  /** `onChange(session)` after each change of what is kept for it. */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#items = load();
    if (this.#items.length) this.push();
  }

  /** From now on messages are this client's. */
  sendAs(client) {
    this.#client = client;
  }

  /** What is kept for a session, oldest first: {id, session, content, state: waiting | refused, why?}. */
  of(session) {
    return this.#items.filter((item) => item.session === session);
  }

  /** Keep a text and send it. */
  send(session, content) {
    this.#items.push({ id: postId(this.#client), session, content, state: "waiting" });
    this.#changed(session);
    this.push();
  }

  /** Give up on an item; returns its text. */
  discard(id) {
    const item = this.#items.find((other) => other.id === id);
    if (item) this.#remove(item);
    return item?.content ?? "";
  }

  /** The message is in the transcript: nothing is left to do. */
  arrived(id) {
    const item = this.#items.find((other) => other.id === id);
    if (item) this.#remove(item);
  }

  /** Send now what waits, in order. */
  async push() {
    clearTimeout(this.#timer);
    if (this.#sending) return;
    this.#sending = true;
    try {
      let item;
      while ((item = this.#items.find((other) => other.state === "waiting"))) {
        await this.#post(item);
      }
      this.#failures = 0;
    } catch (error) {
      const pause = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.#failures);
      this.#failures += 1;
      this.#timer = setTimeout(() => this.push(), Math.max(pause, (error.retryAfter ?? 0) * 1000));
    } finally {
      this.#sending = false;
    }
  }

  /** Sends one item; throws what may pass. */
  async #post(item) {
    const address = `/v1/sessions/${part(item.session)}/messages`;
    try {
      await post(address, { content: item.content, message_id: item.id });
      item.state = "accepted";
    } catch (error) {
      if (error.passing || error.status === 401) throw error;
      Object.assign(item, { state: "refused", why: error.message });
    }
    this.#changed(item.session);
  }

  #remove(item) {
    this.#items.splice(this.#items.indexOf(item), 1);
    this.#changed(item.session);
  }

  #changed(session) {
    try {
      sessionStorage.setItem(STORE, JSON.stringify(this.#items));
    } catch {
      // A browser that keeps nothing for pages: then it lives as long as this page.
    }
    this.#onChange(session);
  }
}

function load() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE) ?? "[]");
  } catch {
    return [];
  }
}
