// What this tab is to the server, and what it keeps over a reload: its id, its open session, what it has acted upon, where it was before.
//
// Invariant: two tabs never share an id. The browser copies what a tab keeps when it is duplicated; the copy then takes an id of its own.

import { hex } from "./handoffs.js";

const STORE = "callboard.tab";
const CLAIM_MS = 300;
const TRAIL_MOST = 50;

/** Take the id that this tab had, or a new one: {client, open, handled, frontiers, going, trail}, the latter five as they were kept. */
export async function claimTab() {
  const kept = load();
  if (kept && (await mine(kept.client))) return kept;
  const fresh = { client: `web-${hex(16)}`, open: null, handled: [], frontiers: {}, going: false, trail: [] };
  await mine(fresh.client);
  keepTab(fresh);
  return fresh;
}

/** Keep this from now on. */
export function keepTab(tab) {
  try {
    sessionStorage.setItem(STORE, JSON.stringify({ ...tab, trail: tab.trail.slice(-TRAIL_MOST) }));
  } catch {
    // A browser that keeps nothing for pages: then a reload is a new tab.
  }
}

function load() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE));
  } catch {
    return null;
  }
}

/** Hold the id while this page lives. False if another page does; one that is just being left lets go in time. */
async function mine(client) {
  if (!navigator.locks) return true;
  const end = Date.now() + CLAIM_MS;
  while (!(await free(client))) {
    if (Date.now() > end) return false;
    await new Promise((resolve) => { setTimeout(resolve, CLAIM_MS / 10); });
  }
  return true;
}

/** Hold it if nobody does. Asked, and not waited for under a limit: on a busy machine the answer that it is free may come after any limit. */
function free(client) {
  return new Promise((resolve) => {
    navigator.locks
      .request(`callboard.tab.${client}`, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        return lock && new Promise(() => {});
      })
      .catch(() => resolve(false));
  });
}
