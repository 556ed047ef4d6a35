// Records: a live tail that can be stopped and keeps what is shown, or a page of the past; filtered, and to take away.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, topicPath, withQuery, writeExactly } from "../../api.js";
import { replaceQuery } from "../../address.js";
import { count, plural, range } from "../../format.js";
import { useViewKeys } from "../../keyboard.js";
import { follow } from "../../tail.js";
import { Kind } from "../../parts/patterns.jsx";
import { Record } from "../../parts/record.jsx";

const KEPT = 500;
const SHOWN = 200;
const EXPORTED = 100_000;
const REASONS = { cap: "cap", ttl: "ttl", mixed: "cap", source_trim: "trim", from_seq_too_old: "cap", recreated: "lost" };

export function Records({ name, query }) {
  const filters = { tag: query.tag, node: query.node, text: query.text, since: query.since, until: query.until };
  const isPast = Boolean(query.since || query.until || query.seq);
  return (
    <>
      <Filters name={name} filters={filters} seq={query.seq} />
      {isPast ? <Past key={JSON.stringify(query)} name={name} query={query} /> : <Live key={`${query.tag}`} name={name} filters={filters} />}
    </>
  );
}

function Filters({ filters, seq }) {
  const field = (id, label, props) => <Field key={id} id={id} label={label} value={filters[id] ?? ""} {...props} />;
  const time = (id, label) => field(id, label, { type: "datetime-local", step: 1, value: local(filters[id]), read: (text) => (text ? String(new Date(text).getTime()) : "") });
  return (
    <form class="fields filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      {field("tag", "Tag", { placeholder: "shop:7, or shop:*" })}
      {field("node", "Node", { placeholder: "written by" })}
      {field("text", "Text", { placeholder: "contained in the record" })}
      {time("since", "From")}
      {time("until", "Until")}
      {field("seq", "At seq", { inputmode: "numeric", value: seq ?? "", read: (text) => text.replace(/\D/g, "") })}
    </form>
  );
}

// The view is drawn anew every second: what is being typed stays until it counts, or the field is left.
function Field({ id, label, value, read = (text) => text.trim(), ...props }) {
  const [typed, setTyped] = useState(null);
  const take = (event) => {
    setTyped(null);
    replaceQuery({ [id]: read(event.target.value) });
  };
  return (
    <div class="field">
      <label for={`filter-${id}`}>{label}</label>
      <input id={`filter-${id}`} {...props} value={typed ?? value} onInput={(event) => setTyped(event.target.value)} onChange={take} onBlur={() => setTyped(null)} autocomplete="off" spellcheck={false} />
    </div>
  );
}

function local(ms) {
  if (!ms) return "";
  const date = new Date(Number(ms));
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

const matches = ({ node, text }) => (item) => {
  if (item.gap) return true;
  if (node && !(item.$node ?? "").includes(node)) return false;
  return !text || writeExactly(item).toLowerCase().includes(text.toLowerCase());
};

function Live({ name, filters }) {
  const tail = useTail(name, filters.tag);
  const chosen = useMemo(() => tail.items.filter(matches(filters)), [tail.items, filters.node, filters.text]);
  useViewKeys((key) => key === "p" && (tail.toggle(), true), [tail.running]);
  const shown = chosen.slice(-SHOWN).reverse();
  return (
    <>
      <div class="actions">
        <button type="button" onClick={tail.toggle} aria-pressed={!tail.running}>{tail.running ? "Stop" : "Go on"}</button>
        <State tail={tail} />
        <span class="quiet">{count(tail.seen)} since it was opened{tail.seen > KEPT ? `; the last ${count(KEPT)} are kept here` : ""}</span>
        <Export name={name} items={chosen} filters={filters} />
      </div>
      <List items={shown} empty={tail.running ? "Waiting for records." : "Nothing."} />
    </>
  );
}

function State({ tail }) {
  if (!tail.running) return <span class="pill idle">Stopped</span>;
  if (tail.state === "live") return <span class="pill good">Live</span>;
  if (tail.state === "deleted") return <span class="pill bad">The topic was deleted</span>;
  return <span class="pill warn">{tail.state === "broken" ? `Broken off: ${tail.why}` : "Connecting"}</span>;
}

// Records arrive faster than anything can be drawn: they are gathered, and shown a few times a second.
function useTail(name, tag) {
  const [running, setRunning] = useState(true);
  const [view, setView] = useState({ items: [], seen: 0, state: "connecting", why: "" });
  const held = useRef({ items: [], seen: 0, last: null, stop: () => {} });
  useEffect(() => {
    if (!running) return undefined;
    const kept = held.current;
    let state = "connecting";
    let why = "";
    let dirty = true;
    const add = (more) => {
      kept.items.push(...(more.length > KEPT ? more.slice(-KEPT) : more));
      if (kept.items.length > 2 * KEPT) kept.items.splice(0, kept.items.length - KEPT);
      dirty = true;
    };
    const stop = follow(name, {
      from: kept.last ?? -100,
      tag,
      onRecords: (records) => {
        kept.seen += records.length;
        kept.last = records[records.length - 1].$seq;
        add(records);
      },
      onGap: (gap) => add([{ gap: { ...gap, kind: REASONS[gap.reason] ?? "lost" } }]),
      onState: (next, reason = "") => {
        state = next;
        why = reason;
        dirty = true;
      },
    });
    const show = () => {
      if (!dirty) return;
      dirty = false;
      setView({ items: kept.items.slice(-KEPT), seen: kept.seen, state, why });
    };
    const timer = setInterval(show, 150);
    kept.stop = () => {
      stop();
      clearInterval(timer);
      show();
    };
    return kept.stop;
  }, [running, name, tag]);
  const toggle = () => {
    // At once: the effect ends only when the view has been drawn, and what comes until then would be shown as well.
    held.current.stop();
    setRunning(!running);
  };
  return { ...view, running, toggle };
}

function Past({ name, query }) {
  const [pages, setPages] = useState({ items: [], next: query.seq ? Math.max(Number(query.seq) - 1, 0) : 0, done: false, error: "" });
  const busy = useRef(false);
  const more = async () => {
    if (busy.current) return;
    busy.current = true;
    try {
      const page = await get(withQuery(topicPath(name, "/records"), { from_seq: pages.next, limit: 100, tag: query.tag, since: query.since, until: query.until, include_tags: "true" }));
      const gap = page.tombstone ? [{ gap: { ...page.tombstone, kind: REASONS[page.tombstone.reason] ?? "lost" } }] : [];
      setPages((before) => ({ items: [...before.items, ...gap, ...page.records].slice(-2000), next: page.next_from_seq, done: page.caught_up, error: "" }));
    } catch (error) {
      setPages((before) => ({ ...before, error: error.message }));
    } finally {
      busy.current = false;
    }
  };
  useEffect(() => void more(), []);
  const shown = pages.items.filter(matches(query));
  return (
    <>
      <div class="actions">
        <span class="quiet">{plural(shown.length, "record")} shown, oldest first{pages.done ? ", up to the head" : ""}</span>
        <button type="button" onClick={more} disabled={pages.done}>More</button>
        <button type="button" onClick={() => replaceQuery({ since: "", until: "", seq: "" })}>Back to the live tail</button>
        <Export name={name} items={shown} filters={query} />
      </div>
      {pages.error && <p class="alarm" role="alert">{pages.error}</p>}
      <List items={shown} empty="Nothing." />
    </>
  );
}

function List({ items, empty }) {
  if (!items.length) return <p class="quiet">{empty}</p>;
  return (
    <div class="records" role="log" aria-live="off" aria-label="Records" tabindex="0">
      {items.map((item) =>
        item.gap ? <Gap key={`gap-${item.gap.gap_from}`} gap={item.gap} /> : <Record key={item.$seq} record={item} />,
      )}
    </div>
  );
}

function Gap({ gap }) {
  const lost = gap.gap_to - gap.gap_from + 1;
  return (
    <p class={`gap is-${gap.kind}`}>
      <Kind kind={gap.kind}>
        {gap.reason === "recreated" ? "The topic was made anew" : `${range(gap.gap_from, gap.gap_to)} ${lost === 1 ? "is" : "are"} gone: ${gap.reason.replaceAll("_", " ")}`}
      </Kind>
    </p>
  );
}

function Export({ name, items, filters }) {
  const [state, setState] = useState("");
  const all = async () => {
    const lines = [];
    let next = filters.seq ? Math.max(Number(filters.seq) - 1, 0) : 0;
    try {
      for (;;) {
        const page = await get(withQuery(topicPath(name, "/records"), { from_seq: next, limit: 1000, tag: filters.tag, since: filters.since, until: filters.until, include_tags: "true" }));
        lines.push(...page.records.filter(matches(filters)).map((record) => writeExactly(record)));
        next = page.next_from_seq;
        setState(`${count(lines.length)}…`);
        if (page.caught_up || lines.length >= EXPORTED) break;
      }
      save(name, lines);
      setState(lines.length >= EXPORTED ? `the first ${count(EXPORTED)}` : "");
    } catch (error) {
      setState(error.message);
    }
  };
  return (
    <span class="actions end">
      <button type="button" onClick={() => save(name, items.filter((item) => !item.gap).map((item) => writeExactly(item)))}>Export shown</button>
      <button type="button" onClick={all}>Export all</button>
      {state && <span class="quiet" role="status">{state}</span>}
    </span>
  );
}

function save(name, lines) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/x-ndjson" }));
  link.download = `${name}.ndjson`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
