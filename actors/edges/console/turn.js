// A turn while it runs: its text as it comes, its calls, and the questions that it asks people.
//
// Invariant: streamed text is appended to one text node and never read out piece by piece; a question is made once, so that a button keeps
// its focus while the text around it grows.

import { part, post } from "./api.js";
import { acting } from "./details.js";
import { announce, arrange, el, setText, when } from "./dom.js";

/** The element of one turn; `draw` brings it up to date. */
export class LiveTurn {
  #text = document.createTextNode("");
  #state = el("span", { class: "chip" });
  #body = el("div", { class: "text" }, this.#text);
  #calls = el("ul", { class: "calls" });
  #questions = el("div", {});
  #why = el("p", { class: "why", hidden: true });
  #asked = new Map();
  #called = new Map();

  constructor(turn, session) {
    this.id = turn.id;
    this.node = el("article", { class: "entry theirs streaming", "aria-label": `${session.agent} is answering` },
      el("p", { class: "entry-head" }, el("span", { class: "who" }, session.agent), this.#state),
      this.#calls, this.#body, this.#why, this.#questions);
  }

  draw(turn) {
    const shown = this.#text.data;
    if (turn.text.startsWith(shown)) this.#text.appendData(turn.text.slice(shown.length));
    else this.#text.data = turn.text;
    this.#body.hidden = turn.text === "";
    setText(this.#state, labelOf(turn));
    this.#why.hidden = !turn.detail;
    setText(this.#why, turn.detail ?? "");
    this.node.dataset.state = turn.state;
    arrange(this.#calls, [...turn.calls].map(([id, call]) => this.#call(id, call)));
    arrange(this.#questions, [...turn.approvals.values()].filter((asked) => asked.state === "waiting").map((asked) => this.#question(asked)));
  }

  #call(id, call) {
    const known = this.#called.get(id);
    if (known?.call === call) return known.node;
    const node = el("li", { class: "call" },
      el("details", { class: "details" },
        el("summary", {}, `${call.tool} `, el("span", { class: "muted" }, call.done ? "done" : "running")),
        el("pre", {}, JSON.stringify(call.arguments, null, 2) ?? ""),
        call.done ? el("pre", {}, JSON.stringify(call.result, null, 2) ?? "") : null));
    this.#called.set(id, { call, node });
    return node;
  }

  #question(asked) {
    const known = this.#asked.get(asked.approval_id);
    if (known) return known;
    const answer = (approve) => () => post(`/v1/approvals/${part(asked.approval_id)}`, { approve });
    const title = el("h3", { id: `q-${asked.approval_id}` }, "May ", el("code", {}, asked.tool), " run?");
    const node = el("section", { class: "question", "aria-labelledby": `q-${asked.approval_id}` }, title,
      el("pre", {}, JSON.stringify(asked.arguments, null, 2) ?? ""),
      el("p", { class: "muted" }, "If nobody answers by ", when(asked.expires), " it is denied."),
      el("div", { class: "choices operators" },
        acting("Approve", "Approved", answer(true), () => settle(node), "primary"),
        acting("Deny", "Denied", answer(false), () => settle(node))));
    this.#asked.set(asked.approval_id, node);
    announce(`Approval needed: may ${asked.tool} run?`);
    return node;
  }
}

function settle(node) {
  for (const button of node.querySelectorAll("button")) button.disabled = true;
}

function labelOf(turn) {
  switch (turn.state) {
    case "retrying": return `attempt ${turn.attempt} ${turn.cause === "retried" ? "failed" : "was cut off"}; another follows`;
    case "waiting": return "waits for you";
    case "thinking": return "thinking";
    case "reconciling": return "checking what was saved";
    default: return turn.text ? "answering" : "working";
  }
}
