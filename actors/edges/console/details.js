// One message for who looks after it: its stages, why it failed, its attempts, and what can be done. Used by transcript and inbox.
//
// Invariant: an action is offered only where the server allows it in that state; if it has changed meanwhile, the server's refusal is shown.

import { get, part, post } from "./api.js";
import { announce, el, when, words } from "./dom.js";

const STAGES = { accepted: "Accepted", leased: "Claimed", surfaced: "Seen by the agent", committed: "Committed" };
const ENDINGS = { retried: "will be tried again", failed: "failed", handed_back: "was handed back" };

/** A button that requeues a final message, with a place for what the server says. `done` is called once it is requeued. */
export function requeueButton(id, done) {
  // One key for this button: pressed twice, or sent twice, it is one requeue.
  const key = `requeue-${id}-${Date.now().toString(36)}`;
  return acting("Requeue", "Requeued", () => post(`/v1/inbox/${part(id)}/requeue`, {}, { key }), done);
}

/** A button that cancels a message that still waits. */
export function cancelButton(id, done) {
  return acting("Cancel", "Cancelled", () => post(`/v1/inbox/${part(id)}/cancel`), done);
}

/** A button for one request; while it runs it can't be pressed again, and a refusal is shown beside it. */
export function acting(label, after, request, done, kind = "") {
  const note = el("span", { class: "note", role: "status" });
  const button = el("button", { type: "button", class: kind, onclick: act }, label);
  async function act() {
    button.disabled = true;
    note.textContent = "";
    try {
      await request();
      note.textContent = `${after}.`;
      announce(`${after}.`);
      done?.();
    } catch (error) {
      button.disabled = false;
      note.textContent = `Not done: ${error.message}.`;
    }
  }
  return el("span", { class: "acting operators" }, button, note);
}

/** A disclosure that reads the message when it is opened. */
export function detailsOf(id, label = "Details") {
  const body = el("div", { class: "details-body" });
  const box = el("details", { class: "details", ontoggle: () => { if (box.open) fill(); } }, el("summary", {}, label), body);
  async function fill() {
    try {
      body.replaceChildren(sheet(await get(`/v1/messages/${part(id)}`)));
    } catch (error) {
      body.replaceChildren(el("p", { class: "bad" }, `Can't be read: ${error.message}.`));
    }
  }
  return box;
}

function sheet(message) {
  const rows = [];
  const row = (name, ...value) => rows.push(el("dt", {}, name), el("dd", {}, ...value));
  for (const [name, at] of Object.entries(message.stages)) row(STAGES[name] ?? words(name), when(at));
  if (message.outcome) row("Outcome", words(message.outcome));
  if (message.reason) row("Reason", words(message.reason));
  if (message.last_error) row("Last error", el("pre", {}, message.last_error));
  row("Attempts", `${message.attempts} of ${message.max_attempts} failed, claimed ${message.attempt} times`);
  row("Message", el("code", {}, message.message_id));
  if (message.turn_id) row("Turn", el("code", {}, message.turn_id));
  if (message.requeued_from) row("Requeued from", el("code", {}, message.requeued_from));
  const list = el("dl", {}, ...rows);
  if (!message.history?.length) return list;
  const attempts = message.history.map((attempt) =>
    el("li", {}, `Attempt ${attempt.attempt} ${ENDINGS[attempt.ending] ?? words(attempt.ending)} at `, when(attempt.at),
      attempt.detail ? el("pre", {}, attempt.detail) : null));
  return el("div", {}, list, el("h4", {}, "History"), el("ol", { class: "history" }, ...attempts));
}
