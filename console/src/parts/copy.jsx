import { useState } from "preact/hooks";

export function Copy({ text, label = "Copy", what }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      setDone(false);
    }
  };
  return (
    <button type="button" class="small" onClick={copy} aria-label={what && !done ? `${label}: ${what}` : undefined}>{done ? "Copied" : label}</button>
  );
}
