// The supervision tree as the server says it is now. Invariant: of a supervisor with many children the first ones are shown and the rest counted.

import { get } from "./api.js";
import { ago, byId, el, setText, when, words } from "./dom.js";

const CHILDREN = 60;
const OPEN_MOST = 8;

export class Tree {
  #shown = "";
  /** What a person has opened or closed: address → whether it is open. */
  #turned = new Map();

  /** Read and draw it. */
  async refresh() {
    const root = await get("/v1/tree");
    const stamp = JSON.stringify(root);
    setText(byId("tree-note"), summary(root));
    byId("tree").classList.remove("stale");
    for (const shown of byId("tree").querySelectorAll("[data-since]")) setText(shown, `for ${ago(shown.dataset.since)}`);
    if (stamp === this.#shown) return;
    this.#shown = stamp;
    const focused = document.activeElement?.closest?.("#tree details")?.dataset.at;
    byId("tree").replaceChildren(el("ul", {}, this.#node(root, root.name)));
    if (focused) byId("tree").querySelector(`details[data-at="${CSS.escape(focused)}"] > summary`)?.focus();
  }

  /** What is shown may not be true any more. */
  stale() {
    if (this.#shown) byId("tree").classList.add("stale");
  }

  #node(node, at) {
    const line = [
      el("span", { class: "node-name" }, node.name),
      el("span", { class: "chip", "data-state": node.state }, words(node.state)),
      el("span", { class: "node-more muted" }, el("span", {}, words(node.kind)),
        node.restarts ? el("span", { class: "restarts" }, `${node.restarts} ${node.restarts === 1 ? "restart" : "restarts"}`) : null,
        el("span", { "data-since": node.since }, `for ${ago(node.since)}`), el("span", { class: "since" }, "since ", when(node.since))),
    ];
    if (!node.children.length) return el("li", {}, el("div", { class: "node" }, ...line));
    const shown = node.children.slice(0, CHILDREN).map((child, number) => this.#node(child, `${at}/${child.name}#${number}`));
    const left = node.children.length - shown.length;
    if (left > 0) shown.push(el("li", {}, el("div", { class: "node muted" }, `and ${left.toLocaleString()} more`)));
    // Connections and turns come and go by the hundred: they are counted until somebody wants to see them.
    const wide = node.children.length <= OPEN_MOST || at === node.name;
    const open = this.#turned.get(at) ?? wide;
    line.splice(1, 0, el("span", { class: "count muted" }, `${node.children.length}`, el("span", { class: "sr" }, " children")));
    const head = el("summary", { class: "node", onclick: () => this.#turned.set(at, !box.open) }, ...line);
    const box = el("details", { "data-at": at, open }, head, el("ul", {}, ...shown));
    return el("li", {}, box);
  }
}

function summary(root) {
  let [nodes, restarts, off] = [0, 0, 0];
  const walk = (node) => {
    nodes += 1;
    restarts += node.restarts;
    if (node.state !== "running") off += 1;
    node.children.forEach(walk);
  };
  walk(root);
  const parts = [`${nodes} parts`, `${restarts} ${restarts === 1 ? "restart" : "restarts"}`];
  return off ? `${parts.join(", ")}, ${off} not running.` : `${parts.join(", ")}, all running.`;
}
