// Requests to our own origin. Here: JSON in and out, errors as values of two kinds. Not here: streams (link), what is asked for.
//
// Invariant: credentials are the browser's cookie and nothing else; this page never sees a token.

const SECONDS = 15;

/** The server answered and said no. `code` is stable, `message` is for people, `value` is the whole answer. */
export class Refused extends Error {
  constructor(status, value, retryAfter) {
    super(value?.error?.message ?? `the server answered ${status}`);
    Object.assign(this, { name: "Refused", status, value, code: value?.error?.code ?? "unknown", path: value?.error?.path, retryAfter });
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status >= 500 || this.status === 429 || this.status === 408;
  }
}

/** No answer came: the server is gone, or the network. */
export class Unreachable extends Error {
  constructor() {
    super("the server does not answer");
    this.name = "Unreachable";
  }

  get passing() {
    return true;
  }
}

const listeners = new Set();
let project = null;

/** Act in this project from now on; null for who has one only. */
export const actIn = (name) => { project = name; };

/** Call `listener(kind)` after each request: "answered", "unreachable" or "unauthorized". */
export const onContact = (listener) => listeners.add(listener);

const tell = (kind) => listeners.forEach((listener) => listener(kind));

/** The JSON of an answer, null if it has none. Throws `Refused`, `Unreachable`; an aborted `signal` throws its own reason. */
export async function call(method, path, { query, body, key, signal } = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (project !== null) headers["Callboard-Project"] = project;
  if (key !== undefined) headers["Idempotency-Key"] = key;
  const limit = AbortSignal.timeout(SECONDS * 1000);
  let answer, value;
  try {
    answer = await fetch(address, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    const text = await answer.text();
    value = text ? JSON.parse(text) : null;
  } catch (error) {
    if (signal?.aborted) throw error;
    tell("unreachable");
    throw new Unreachable();
  }
  if (answer.ok) {
    tell("answered");
    return value;
  }
  tell(answer.status === 401 ? "unauthorized" : "answered");
  throw new Refused(answer.status, value, Number(answer.headers.get("Retry-After")) || 1);
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body = {}, more = {}) => call("POST", path, { body, ...more });

/** Part of an address. */
export const part = encodeURIComponent;
