// The box to write in. Invariant: what a person has begun to write in a session is there again when the session is chosen again.

import { byId } from "./dom.js";

const ROWS_MOST = 8;

export class Composer {
  #form = byId("composer");
  #text = byId("text");
  #drafts = new Map();
  #session = null;
  #send;

  /** `send(content)` is called with what is to be sent. */
  constructor(send) {
    this.#send = send;
    this.#text.addEventListener("input", () => this.#grow());
    this.#text.addEventListener("keydown", (event) => {
      // While a word is being composed Enter takes it over.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
  }

  /** Write to this session. */
  open(session) {
    this.#session = session;
    this.#form.hidden = false;
    this.#set(this.#drafts.get(session) ?? "");
  }

  /** Nothing can be written. */
  close() {
    if (this.#session !== null) this.#drafts.set(this.#session, this.#text.value);
    this.#session = null;
    this.#form.hidden = true;
  }

  focus() {
    if (!this.#form.hidden) this.#text.focus();
  }

  /** Put a text back, before what stands there. */
  edit(content) {
    this.#set(this.#text.value ? `${content}\n${this.#text.value}` : content);
    this.#text.focus();
  }

  #submit() {
    const content = this.#text.value;
    if (!content.trim() || this.#session === null) return;
    this.#set("");
    this.#send(content);
  }

  #set(content) {
    this.#text.value = content;
    this.#grow();
  }

  #grow() {
    this.#text.rows = Math.min(ROWS_MOST, this.#text.value.split("\n").length);
  }
}
