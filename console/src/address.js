// Every view has an address, behind the #: it can be sent to others, and the back button works.
import { useEffect, useState } from "preact/hooks";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/");
  return {
    view: view || "overview",
    name: rest.length ? decode(rest.join("/")) : "",
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(view, name = "", query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept).toString();
  const path = view === "overview" ? "" : view + (name ? "/" + encodeURIComponent(name) : "");
  return `#/${path}${text ? "?" + text : ""}`;
}

export const topicAddress = (name, query) => address("topic", name, query);

export function go(view, name, query) {
  location.hash = address(view, name, query);
}

// Small changes, such as a zoom, do not each get a place in the history.
export function replaceQuery(changes) {
  const { view, name, query } = parse(location.hash);
  history.replaceState(null, "", address(view, name, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useAddress() {
  const [place, setPlace] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setPlace(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
