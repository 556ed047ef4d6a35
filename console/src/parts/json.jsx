// A JSON value as a tree whose parts fold. Everything is text: nothing in it becomes markup.
import { useState } from "preact/hooks";
import { writeExactly } from "../api.js";

const MOST_SHOWN = 200;

export function Json({ value, depth = 0 }) {
  if (value === null || typeof value !== "object") return <Leaf value={value} />;
  return <Branch value={value} depth={depth} />;
}

function Leaf({ value }) {
  const kind = value === null ? "null" : typeof value;
  return <span class={`json-${kind}`}>{writeExactly(value)}</span>;
}

function Branch({ value, depth }) {
  const isArray = Array.isArray(value);
  const entries = isArray ? value.map((item, index) => [index, item]) : Object.entries(value);
  const [open, setOpen] = useState(depth < 2 && entries.length <= 30);
  const [begin, end] = isArray ? "[]" : "{}";
  if (!entries.length) return <span>{begin}{end}</span>;
  return (
    <>
      <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> {begin}
        {!open && <span class="quiet"> {entries.length} {isArray ? "items" : "keys"} {end}</span>}
      </button>
      {open && (
        <>
          <ul class="json">
            {entries.slice(0, MOST_SHOWN).map(([key, item]) => (
              <li key={key}>
                {!isArray && <span class="json-key">{JSON.stringify(key)}: </span>}
                <Json value={item} depth={depth + 1} />
              </li>
            ))}
            {entries.length > MOST_SHOWN && <li class="quiet">and {entries.length - MOST_SHOWN} more; copy it to see them all</li>}
          </ul>
          {end}
        </>
      )}
    </>
  );
}
