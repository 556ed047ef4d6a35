// Keys for everything, where no field has the focus.
import { useLayoutEffect } from "preact/hooks";
import { address } from "./address.js";
import { nextTheme } from "./theme.js";

export const SHORTCUTS = [
  ["/", "find a topic"],
  ["?", "this help"],
  ["g then o", "overview"],
  ["g then q", "queues"],
  ["g then r", "routers"],
  ["g then c", "cursors"],
  ["g then s", "system"],
  ["j and k", "next and previous row of a table; Enter opens it"],
  ["1 to 6", "the parts of a topic"],
  ["p", "stop the live tail, or go on with it"],
  ["+ and −", "zoom the band; ← and → move it, 0 shows all of it"],
  ["t", "light, dark, or as the system has it"],
  ["Esc", "close, or leave a field"],
];

const PLACES = { o: "overview", q: "queues", r: "routers", c: "cursors", s: "system" };

function isField(element) {
  return element?.matches?.("input, textarea, select, [contenteditable]");
}

function moveRow(step) {
  const links = [...document.querySelectorAll("main table tbody a.row-link, main .row-link")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = links[Math.min(Math.max(at + step, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

export function useKeys(place, onHelp) {
  useLayoutEffect(() => {
    let going = false;
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") {
        // A field is left as it is; a dialog closes by itself.
        if (isField(event.target)) event.preventDefault();
        return void document.activeElement?.blur?.();
      }
      if (isField(event.target) || document.querySelector("dialog[open]")) return;
      const wasGoing = going;
      going = false;
      if (wasGoing && PLACES[event.key]) location.hash = address(PLACES[event.key]);
      else if (event.key === "g") going = true;
      else if (event.key === "/") document.getElementById("find")?.focus();
      else if (event.key === "?") onHelp();
      else if (event.key === "t") nextTheme();
      else if (event.key === "j") moveRow(1);
      else if (event.key === "k") moveRow(-1);
      else return void dispatchEvent(new CustomEvent("console-key", { detail: event }));
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

// Keys that mean something in one view only. They work as soon as the view is seen.
export function useViewKeys(handle, dependencies) {
  useLayoutEffect(() => {
    const pressed = (event) => {
      if (handle(event.detail.key)) event.detail.preventDefault();
    };
    addEventListener("console-key", pressed);
    return () => removeEventListener("console-key", pressed);
  }, dependencies);
}
