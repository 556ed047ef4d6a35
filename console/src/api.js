// Requests to the server that this page came from. The key goes into a header; it is never in an address.
const KEY = "topics-key";

export const base = new URL(".", location.href.split("#")[0]).href;

export function storedKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

// Kept by this tab alone, and gone with it.
export function storeKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export class Failure extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.detail = error.detail ?? {};
  }
}

const unreachable = () => new Failure(0, { code: "unreachable", message: "the server does not answer" });

export function send(method, path, body, { signal, headers } = {}) {
  const key = storedKey();
  return fetch(base + path.replace(/^\//, ""), {
    method,
    signal,
    cache: "no-store",
    credentials: "omit",
    headers: {
      Accept: "application/json",
      ...(key && { Authorization: `Bearer ${key}` }),
      ...(body !== undefined && { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
  });
}

export async function request(method, path, body, options) {
  let answer;
  try {
    answer = await send(method, path, body, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  const text = await answer.text();
  let value;
  try {
    value = parseExactly(text);
  } catch {
    throw new Failure(answer.status, { code: "unreadable", message: `the server answered ${answer.status}` });
  }
  if (value?.error) throw new Failure(answer.status, value.error);
  return value;
}

export const get = (path, options) => request("GET", path, undefined, options);

export const topicPath = (name, rest = "") => `/v0/topics/${encodeURIComponent(name)}${rest}`;

export function withQuery(path, values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

// Whole numbers that a double cannot hold stay what they are, where the browser lets us see their digits.
export function parseExactly(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

export function writeExactly(value, indent) {
  const text = JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? JSON.rawJSON?.(`${inner}`) ?? `${inner}` : inner), indent);
  return text ?? "null";
}
