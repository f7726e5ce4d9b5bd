// The conversation as it is shown: entries, what the running turn says, what was sent and is on its way.
//
// Here: elements of one session. Not here: what events mean (conversation), the running turn (turn), sending (outbox).
//
// Invariant: the page holds a bounded part of a transcript, its newest end or what was asked for; an entry's element is made anew only
// when the entry has changed.

import { detailsOf, requeueButton } from "./details.js";
import { announce, arrange, byId, el, named, setText, when, words } from "./dom.js";
import { LiveTurn } from "./turn.js";

const SHOWN = 150;
const MORE = 200;
const NEAR_PX = 80;

export class Transcript {
  #conversation;
  #outbox;
  #edit;
  #me;
  #scroller = byId("transcript");
  #list = el("ol", { class: "entries" });
  #earlier = el("button", { type: "button", class: "more", onclick: () => this.#showEarlier() });
  #empty = el("p", { class: "empty" });
  #live = el("div", { class: "live" });
  #nodes = new Map();
  #sent = new Map();
  #turn = null;
  #shown = SHOWN;
  #frame = 0;
  #following = true;

  /** `edit(text)` puts a text back into the composer; `me()` is what the visitor is called. */
  constructor(conversation, outbox, edit, me) {
    this.#conversation = conversation;
    this.#outbox = outbox;
    this.#edit = edit;
    this.#me = me;
    this.#scroller.replaceChildren(this.#earlier, this.#empty, this.#list, this.#live);
    this.#scroller.onscroll = () => {
      this.#following = this.#distance() < NEAR_PX;
      if (this.#following) byId("jump").hidden = true;
    };
    byId("jump").onclick = () => this.toNewest();
    this.draw();
  }

  /** Draw what has changed, at most once a frame. */
  draw() {
    // A page in the background has no frames; what it missed is drawn when it is looked at.
    if (!this.#frame) this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  close() {
    cancelAnimationFrame(this.#frame);
    this.#frame = -1;
  }

  /** Scroll to the end and stay there while it grows. */
  toNewest() {
    this.#following = true;
    byId("jump").hidden = true;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #draw() {
    const all = [...this.#conversation.entries.values()].sort((a, b) => a.seq - b.seq);
    const visible = all.slice(-this.#shown);
    const answers = new Set(all.filter((entry) => entry.role === "assistant").map((entry) => entry.in_reply_to));
    const known = new Set(all.map((entry) => entry.message_id));
    for (const item of this.#outbox.of(this.#conversation.session.id)) if (known.has(item.id)) this.#outbox.arrived(item.id);
    arrange(this.#list, [...visible.map((entry) => this.#entry(entry, answers)), ...this.#waiting()]);
    this.#forget(visible);
    const hidden = all.length - visible.length;
    this.#earlier.hidden = hidden === 0;
    setText(this.#earlier, `Show ${Math.min(MORE, hidden)} earlier of ${hidden.toLocaleString()}`);
    this.#drawTurn();
    const nothing = all.length === 0 && !this.#list.childElementCount && !this.#conversation.turn;
    this.#empty.hidden = !nothing;
    setText(this.#empty, this.#conversation.gone ? "This session does not exist any more."
      : this.#conversation.loaded ? "Nothing here yet. Write the first message below."
      : document.body.dataset.server === "gone" ? "This is loaded when the server is back." : "Loading…");
    if (this.#following) this.toNewest();
    else byId("jump").hidden = this.#distance() < NEAR_PX;
  }

  #showEarlier() {
    const { scrollHeight, scrollTop } = this.#scroller;
    this.#following = false;
    this.#shown += MORE;
    this.#draw();
    // What was looked at stays where it is.
    this.#scroller.scrollTop = scrollTop + this.#scroller.scrollHeight - scrollHeight;
    if (this.#earlier.hidden) this.#list.firstElementChild?.focus?.();
  }

  #forget(visible) {
    const kept = new Set(visible.map((entry) => entry.seq));
    for (const seq of this.#nodes.keys()) if (!kept.has(seq)) this.#nodes.delete(seq);
  }

  #entry(entry, answers) {
    const ending = this.#conversation.endings.get(entry.message_id);
    const turn = [...this.#conversation.turns.values()].find((other) => other.message === entry.message_id);
    const stage = stageOf(entry, ending, turn, answers);
    const known = this.#nodes.get(entry.seq);
    if (known?.entry === entry && known.stage.text === stage?.text) return known.node;
    const node = known?.node ?? el("li", {});
    node.className = `entry ${sideOf(entry)}`;
    node.dataset.seq = entry.seq;
    // What a person has opened stays open while the stage below it changes.
    const opened = node.querySelector("details[open]") && known?.stage.state === stage?.state;
    if (!opened) node.replaceChildren(...this.#parts(entry, stage, ending));
    this.#nodes.set(entry.seq, { entry, stage: stage ?? {}, node });
    return node;
  }

  #parts(entry, stage, ending) {
    const head = el("p", { class: "entry-head" },
      el("span", { class: "who" }, entry.role === "notice" ? "Notice" : named(entry.sender)),
      entry.at ? when(entry.at) : null);
    const parts = [head, el("div", { class: "text" }, entry.content)];
    if (!stage) return parts;
    const foot = el("div", { class: "stage", "data-state": stage.state }, el("span", { class: "chip" }, stage.text));
    if (stage.state === "failed") {
      if (ending?.error) foot.append(el("p", { class: "why" }, ending.error));
      foot.append(requeueButton(entry.message_id, () => {}), detailsOf(entry.message_id));
    }
    return [...parts, foot];
  }

  /** What was sent from this tab and is not in the transcript yet. */
  #waiting() {
    const items = this.#outbox.of(this.#conversation.session.id);
    const kept = new Set(items.map((item) => item.id));
    for (const id of this.#sent.keys()) if (!kept.has(id)) this.#sent.delete(id);
    return items.map((item) => {
      const known = this.#sent.get(item.id);
      if (known?.state === item.state) return known.node;
      const refused = item.state === "refused";
      const text = refused ? `not sent: ${item.why}` : item.state === "accepted" ? "accepted" : "sending";
      const foot = el("div", { class: "stage", "data-state": refused ? "failed" : "sending" }, el("span", { class: "chip" }, text));
      if (refused) {
        foot.append(
          el("button", { type: "button", onclick: () => this.#edit(this.#outbox.discard(item.id)) }, "Edit"),
          el("button", { type: "button", onclick: () => this.#outbox.discard(item.id) }, "Discard"));
        announce(`Not sent: ${item.why}`);
      }
      const node = el("li", { class: "entry mine" },
        el("p", { class: "entry-head" }, el("span", { class: "who" }, this.#me())), el("div", { class: "text" }, item.content), foot);
      this.#sent.set(item.id, { state: item.state, node });
      return node;
    });
  }

  #drawTurn() {
    const turn = this.#conversation.turn;
    byId("stop").hidden = !turn || turn.state === "retrying";
    if (!turn) {
      this.#turn = null;
      this.#live.replaceChildren();
      return;
    }
    if (this.#turn?.id !== turn.id) {
      this.#turn = new LiveTurn(turn, this.#conversation.session);
      this.#live.replaceChildren(this.#turn.node);
    }
    this.#turn.draw(turn);
  }
}

/** The stage of a message for people: {state, text}; null for what is no message to this session. */
function stageOf(entry, ending, turn, answers) {
  if (entry.role !== "user") return null;
  if (entry.state === "failed") return { state: "failed", text: `failed${ending?.reason ? `: ${words(ending.reason)}` : ""}` };
  if (entry.state === "delivered") {
    if (ending?.outcome === "stopped") return { state: "stopped", text: "stopped" };
    return answers.has(entry.message_id) ? { state: "answered", text: "answered" } : { state: "answered", text: "handled" };
  }
  if (turn?.state === "retrying") return { state: "retrying", text: "will be tried again" };
  if (turn?.state === "waiting") return { state: "working", text: "waits for an approval" };
  if (turn || entry.state === "processing") return { state: "working", text: "working" };
  return { state: "accepted", text: "accepted" };
}

function sideOf(entry) {
  if (entry.role === "assistant") return "theirs";
  if (entry.role === "notice") return "notice";
  return entry.sender?.kind === "session" ? "other" : "mine";
}
