// Whether the server is there and well: the pill at the top and the banner under it.
//
// Invariant: what is said is what was last seen. "Gone" needs a request that got no answer; a lost stream alone is "reconnecting".

import { get, onContact } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";

export class Health {
  #reachable = true;
  #signedOut = false;
  #link = "idle";
  #failing = [];
  #stuck = [];
  #said = "";
  #onBack;
  #onSignedOut;

  /** `onBack()`: the server answers again. `onSignedOut()`: this browser's right to ask has ended. */
  constructor(onBack, onSignedOut) {
    this.#onBack = onBack;
    this.#onSignedOut = onSignedOut;
    onContact((kind) => this.#contact(kind));
  }

  get reachable() {
    return this.#reachable;
  }

  get well() {
    return this.#reachable && this.#failing.length === 0;
  }

  get signedOut() {
    return this.#signedOut;
  }

  /** What the live connection says of itself: connecting, live, gone. */
  link(state) {
    this.#link = state;
    this.#draw();
  }

  /** Ask the server how it is. */
  async refresh() {
    try {
      const { failing, stuck } = await get("/healthz");
      [this.#failing, this.#stuck] = [failing, stuck];
    } catch (error) {
      if (error.status === 503) this.#failing = error.value?.failing ?? ["health"];
    }
    this.#draw();
  }

  #contact(kind) {
    if (kind === "unauthorized") {
      if (!this.#signedOut) this.#onSignedOut();
      this.#signedOut = true;
    }
    const before = this.#reachable;
    this.#reachable = kind !== "unreachable";
    this.#draw();
    if (!before && this.#reachable && !this.#signedOut) this.#onBack();
  }

  #draw() {
    const [state, text] = this.#word();
    const pill = byId("connection");
    if (pill.dataset.state !== state) pill.dataset.state = state;
    setText(byId("connection-text"), text);
    document.body.dataset.server = state;
    this.#banner(...this.#message());
  }

  #word() {
    if (this.#signedOut) return ["gone", "Signed out"];
    if (!this.#reachable) return ["gone", "Server gone"];
    if (this.#failing.length) return ["warn", "Not well"];
    if (this.#link === "gone" || this.#link === "connecting") return ["connecting", "Connecting"];
    return ["live", this.#link === "live" ? "Live" : "Connected"];
  }

  #message() {
    if (this.#signedOut) return ["bad", "You are signed out. Run ", el("code", {}, "callboard console"), " where the server runs and open the link that it prints."];
    if (!this.#reachable) return ["bad", "The server does not answer. What you send is kept in this tab and goes out when it is back; this page tries again by itself."];
    if (this.#failing.length) return ["warn", `The server can't take all work now: ${this.#failing.join(", ")}.`];
    if (this.#stuck.length) return ["warn", `${this.#stuck.length === 1 ? "One session is" : `${this.#stuck.length} sessions are`} stuck: an agent does not end. Others are not affected. `, ...this.#stuckLinks()];
    return [null];
  }

  #stuckLinks() {
    return this.#stuck.slice(0, 5).map((id) => el("a", { href: `#/s/${encodeURIComponent(id)}` }, id));
  }

  #banner(kind, ...parts) {
    const banner = byId("banner");
    const text = parts.map((piece) => piece.textContent ?? piece).join("");
    if (text === this.#said) return;
    if (!text && this.#said) announce("All is well again.");
    this.#said = text;
    banner.hidden = !text;
    banner.dataset.kind = kind ?? "";
    banner.replaceChildren(...parts);
  }
}
