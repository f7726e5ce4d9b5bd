// Shortcuts and the help that lists them. Invariant: single keys can be turned off, and never act while a person writes or in a dialog.

import { byId, el } from "./dom.js";

const STORE = "callboard.keys";

/** Make `shortcuts` ([keys, what, act]) work, and list them in the help. */
export function bindKeys(shortcuts) {
  const help = byId("help");
  const switched = byId("keys-on");
  switched.checked = stored() !== "off";
  switched.addEventListener("change", () => {
    try {
      localStorage.setItem(STORE, switched.checked ? "on" : "off");
    } catch {
      // A browser that keeps nothing for pages: it holds until the page is left.
    }
  });
  const open = () => help.showModal();
  byId("help-open").addEventListener("click", open);
  byId("help-close").addEventListener("click", () => help.close());
  const all = [...shortcuts, [["?"], "Show this help", open]];
  byId("help-keys").append(
    el("dl", { class: "keys" }, ...all.flatMap(([keys, what]) => [
      el("dt", {}, ...keys.flatMap((key, at) => (at ? [" or ", el("kbd", {}, key)] : [el("kbd", {}, key)]))), el("dd", {}, what)]),
    el("dt", {}, el("kbd", {}, "Esc")), el("dd", {}, "Leave the text box, close this help")));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape" && !event.isComposing) byId("transcript").focus();
      return;
    }
    if (!switched.checked) return;
    const found = all.find(([keys]) => keys.includes(event.key));
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}

function stored() {
  try {
    return localStorage.getItem(STORE);
  } catch {
    return null;
  }
}
