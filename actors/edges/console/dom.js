// Elements and words. Here: making elements, keyed lists, times for people. Not here: what is shown.
//
// Invariant: data reaches the page as text nodes and attribute values only, never as markup; and a name that others gave stands in an
// element of its own, isolated, so that marks of direction in it turn nothing around that stands beside it.

const BETWEEN = " · ";

/** An element. `attributes`: on* are listeners, true sets a bare attribute, false/null/undefined leave it out. Children: nodes or text. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Make `parent` hold `nodes` in this order, moving only what stands elsewhere: focus and selection in what stays are kept. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

/** Set text only if it differs, so that a screen reader and a selection are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that others gave, beside other text. */
export const name = (text) => el("bdi", {}, text);

/** Set names in a row, each by itself, if they differ as above. */
export function setNames(node, names) {
  if (node.textContent === names.join(BETWEEN)) return;
  node.replaceChildren(...names.flatMap((text, at) => (at ? [BETWEEN, name(text)] : [name(text)])));
}

/** A name where nothing but text can be: on one line, and without marks that are not seen; the joiners of words and emoji stay. */
export const oneLine = (text) =>
  text.replaceAll(/(?![\u200c\u200d])[\p{Cf}\p{Co}\p{Cs}\p{Cn}]/gu, "").replaceAll(/[\p{Cc}\p{Z}]+/gu, " ").trim();

/** Say something to a screen reader, once it is whole. */
export function announce(text) {
  const most = 600;
  const node = byId("announcer");
  node.textContent = "";
  // A live region that is set to what it holds says nothing.
  requestAnimationFrame(() => { node.textContent = text.length > most ? `${text.slice(0, most)}…` : text; });
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

/** A <time> for an RFC 3339 text; today's show the hour only. */
export function when(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return el("time", { datetime: text, title: exact.format(at) }, (today ? clock : day).format(at));
}

/** "3 s", "12 min", "5 h", "2 d" since an RFC 3339 text. */
export function ago(text) {
  return span((Date.now() - new Date(text).getTime()) / 1000);
}

/** A length of time in its largest whole unit. */
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** Words for a machine's name: `retries_used` → "retries used". */
export const words = (name) => name.replaceAll(/[_-]/g, " ");

/** Who a sender is, for people. */
export const named = (sender) => sender?.label || sender?.id || "unknown";
