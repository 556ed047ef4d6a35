// The log of a topic from its first seq to its head, as a band: what is live, and why the rest is not.
//
// Each column is a stretch of seqs; its parts are as high as their share. A part that is not empty is always tall
// enough to be seen: one lost record among a billion is no rounding error.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, topicPath, withQuery } from "../api.js";
import { count, plural, range, short } from "../format.js";
import { useViewKeys } from "../keyboard.js";
import { isLoss, KINDS, MISSING, TITLES } from "../kinds.js";
import { usePoll } from "../poll.js";
import { Kind } from "./patterns.jsx";

const HEIGHT = 96;
const LEAST = { lost: 8, cap: 4, ttl: 4, trim: 4, deleted: 3, live: 3 };
// From the top: what was lost hangs from the edge, what is live stands on the ground.
const ORDER = ["lost", "trim", "cap", "ttl", "deleted", "live"];

export function Band({ name, state, window, onWindow, onPick, picked, cursors, leases }) {
  const frame = useRef(null);
  const width = useWidth(frame);
  // The first seq is a setting of the server, which only a picture of the whole topic tells.
  const known = useRef(1);
  const first = known.current;
  const head = state.head_seq;
  const from = Math.max(window.from ?? first, first);
  const to = Math.min(window.to ?? head, head);
  const isWhole = window.from === undefined && window.to === undefined;
  const buckets = Math.max(Math.min(Math.floor(width / 3), 500), 20);
  const path = withQuery(topicPath(name, "/ledger"), { buckets, from: isWhole ? undefined : from, to: isWhole ? undefined : to });
  const answer = usePoll((signal) => get(path, { signal }), 1000, [path]);
  const last = useRef([]);
  if (answer.value) last.current = answer.value.buckets;
  const columns = last.current;
  if (isWhole && columns.length) known.current = columns[0].from;
  const shownFrom = columns[0]?.from ?? from;
  const shownTo = columns[columns.length - 1]?.to ?? to;

  const zoom = (factor, at = (from + to) / 2) => {
    const length = Math.max(to - from + 1, 1);
    const wanted = Math.max(Math.round(length * factor), Math.min(20, head - first + 1));
    const share = (at - from) / length;
    setWindow(Math.round(at - wanted * share), wanted);
  };
  const setWindow = (start, length) => {
    if (length >= head - first + 1) return onWindow({});
    const begin = Math.min(Math.max(start, first), head - length + 1);
    onWindow({ from: begin, to: begin + length - 1 });
  };
  const move = (share) => setWindow(from + Math.round((to - from + 1) * share), to - from + 1);
  useViewKeys(
    (key) => {
      if (key === "+" || key === "=") zoom(0.5);
      else if (key === "-" || key === "−") zoom(2);
      else if (key === "ArrowLeft") move(-0.25);
      else if (key === "ArrowRight") move(0.25);
      else if (key === "0") onWindow({});
      else return false;
      return true;
    },
    [from, to, first, head],
  );

  const seqAt = (event) => {
    const box = frame.current.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
    return Math.floor(shownFrom + share * (shownTo - shownFrom + 1));
  };
  const drag = useDrag(frame, seqAt, (a, b) => setWindow(a, b - a + 1), (seq) => onPick(columnAt(columns, seq)));
  useWheel(frame, (event) => zoom(event.deltaY > 0 ? 1.35 : 0.74, seqAt(event)), [from, to, first, head]);

  if (head < first || (isWhole && answer.value && !columns.length)) return <p class="quiet">Nothing was written yet.</p>;
  const totals = sum(columns);
  return (
    <div class="band-box">
      <div class="band-tools">
        <span class="quiet">
          {range(shownFrom, shownTo)}
          {isWhole ? ", everything" : ` of ${count(head)}`}
        </span>
        <span class="actions">
          <button type="button" class="small" onClick={() => zoom(0.5)} aria-label="Zoom in">+</button>
          <button type="button" class="small" onClick={() => zoom(2)} disabled={isWhole} aria-label="Zoom out">−</button>
          <button type="button" class="small" onClick={() => move(-0.5)} disabled={isWhole || from <= first} aria-label="Earlier">←</button>
          <button type="button" class="small" onClick={() => move(0.5)} disabled={isWhole || to >= head} aria-label="Later">→</button>
          <button type="button" class="small" onClick={() => onWindow({})} disabled={isWhole}>All</button>
        </span>
      </div>
      <div class="band" ref={frame} {...drag.handlers}>
        <Columns columns={columns} width={width} label={describe(totals, shownFrom, shownTo)} picked={picked} />
        {drag.stretch && <Stretch {...drag.stretch} from={shownFrom} to={shownTo} />}
      </div>
      <Marks from={shownFrom} to={shownTo} width={width} cursors={cursors} leases={leases} />
      <Axis from={shownFrom} to={shownTo} />
      <ul class="legend" aria-label="What became of these records">
        {KINDS.filter((kind) => totals[kind] || kind === "live" || kind === "lost" || kind === "deleted").map((kind) => (
          <li key={kind} class={totals[kind] ? "" : "none"}><Kind kind={kind}>{TITLES[kind]} <b>{count(totals[kind])}</b></Kind></li>
        ))}
      </ul>
    </div>
  );
}

function Columns({ columns, width, label, picked }) {
  const parts = useMemo(() => layOut(columns, width), [columns, width]);
  const length = columns.length ? columns[columns.length - 1].to - columns[0].from + 1 : 1;
  const x = (seq) => ((seq - columns[0].from) / length) * width;
  return (
    <svg width={width} height={HEIGHT} role="img" aria-label={label}>
      {parts.map(([kind, left, top, wide, high]) => (
        <rect x={left} y={top} width={wide} height={high} fill={`url(#fill-${kind})`} data-kind={kind} />
      ))}
      {picked && columns.length > 0 && (
        <rect class="picked" x={x(picked.from)} y="1" width={Math.max(x(picked.to + 1) - x(picked.from), 3)} height={HEIGHT - 2} />
      )}
    </svg>
  );
}

// Neighbours that are wholly of one kind become one rectangle: a band of few stretches has few parts.
function layOut(columns, width) {
  if (!columns.length) return [];
  const begin = columns[0].from;
  const length = columns[columns.length - 1].to - begin + 1;
  // Whole pixels: between two halves of one, the ground would shine through.
  const x = (seq) => Math.round(((seq - begin) / length) * width);
  const parts = [];
  let run = null;
  for (const column of columns) {
    const there = ORDER.filter((kind) => column[kind]);
    const left = x(column.from);
    const right = Math.max(x(column.to + 1), left + 1);
    if (there.length === 1) {
      if (run && run[0] === there[0]) run[3] = right - run[1];
      else parts.push((run = [there[0], left, 0, right - left, HEIGHT]));
      continue;
    }
    run = null;
    let top = 0;
    for (const [kind, high] of heights(column, there)) {
      parts.push([kind, left, top, right - left, high]);
      top += high;
    }
  }
  return parts;
}

export function heights(column, there = ORDER.filter((kind) => column[kind])) {
  const total = column.to - column.from + 1;
  const raw = there.map((kind) => Math.max((column[kind] / total) * HEIGHT, LEAST[kind]));
  // What the small ones got too much, the largest gives.
  const largest = raw.indexOf(Math.max(...raw));
  raw[largest] -= raw.reduce((all, one) => all + one, 0) - HEIGHT;
  return there.map((kind, index) => [kind, raw[index]]);
}

function Marks({ from, to, width, cursors, leases }) {
  const length = to - from + 1;
  const inside = (seq) => seq >= from - 1 && seq <= to;
  const at = (seq) => Math.min(Math.max((seq + 1 - from) / length, 0), 1) * 100;
  const shown = cursors.filter((cursor) => inside(cursor.seq)).sort((a, b) => a.seq - b.seq);
  const held = leases.filter((lease) => inside(lease.$seq));
  if (!shown.length && !held.length) return null;
  const rows = stack(shown.map((cursor) => ({ at: (at(cursor.seq) / 100) * width, wide: 26 + 7 * cursor.consumer.length })), width);
  const deepest = Math.max(0, ...rows) + 1;
  return (
    <ul class="marks" style={{ height: `${(shown.length ? deepest : 0) * 20 + (held.length ? 12 : 0)}px` }} aria-label="Cursors and leases on the band">
      {held.map((lease) => (
        <li class="lease" key={lease.$seq} style={{ left: `${at(lease.$seq - 0.5)}%` }} title={`seq ${lease.$seq} leased by ${lease.node}`}>
          <span class="hidden">seq {lease.$seq} is leased by {lease.node}</span>
        </li>
      ))}
      {shown.map((cursor, index) => (
        <li
          class={at(cursor.seq) > 82 ? "cursor left" : "cursor"}
          key={cursor.consumer}
          style={{ left: `${at(cursor.seq)}%`, top: `${rows[index] * 20 + (held.length ? 12 : 0)}px` }}
          title={`${cursor.consumer}: read up to ${count(cursor.seq)}, ${plural(cursor.lag, "record")} behind`}
        >
          <span aria-hidden="true">▲</span> {cursor.consumer}<span class="hidden"> has read up to seq {cursor.seq}, {cursor.lag} behind</span>
        </li>
      ))}
    </ul>
  );
}

// Labels that would overlap go below each other.
function stack(labels, width) {
  const ends = [];
  return labels.map(({ at, wide }) => {
    const start = at > width * 0.82 ? at - wide : at;
    let row = ends.findIndex((end) => end <= start);
    if (row < 0) row = ends.length;
    ends[row] = start + wide;
    return row;
  });
}

function Axis({ from, to }) {
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(from + (to - from) * share));
  const shown = [...new Set(ticks)];
  return (
    <div class="axis" aria-hidden="true">
      {shown.map((seq) => <span title={count(seq)}>{to - from > 100000 ? short(seq) : count(seq)}</span>)}
    </div>
  );
}

function Stretch({ a, b, from, to }) {
  const length = to - from + 1;
  const [low, high] = a < b ? [a, b] : [b, a];
  return <div class="stretch" style={{ left: `${((low - from) / length) * 100}%`, width: `${((high - low + 1) / length) * 100}%` }} />;
}

export function sum(columns) {
  const totals = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  for (const column of columns) for (const kind of KINDS) totals[kind] += column[kind];
  return totals;
}

function describe(totals, from, to) {
  const parts = KINDS.filter((kind) => totals[kind]).map((kind) => `${count(totals[kind])} ${TITLES[kind].toLowerCase()}`);
  return `The log from seq ${from} to ${to}: ${parts.join(", ") || "nothing"}`;
}

export function columnAt(columns, seq) {
  return columns.find((column) => column.from <= seq && seq <= column.to) ?? null;
}

export const missingKinds = (column) => MISSING.filter((kind) => column[kind]);
export const lossOf = (column) => MISSING.filter(isLoss).reduce((all, kind) => all + column[kind], 0);

function useWidth(frame) {
  const [width, setWidth] = useState(1000);
  useLayoutEffect(() => {
    const measure = () => frame.current && setWidth(Math.max(Math.floor(frame.current.clientWidth), 50));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current ?? document.body);
    return () => observer.disconnect();
  }, []);
  return width;
}

function useDrag(frame, seqAt, onStretch, onClick) {
  const [stretch, setStretch] = useState(null);
  const begin = useRef(null);
  const down = (event) => {
    if (event.button !== 0) return;
    begin.current = { x: event.clientX, seq: seqAt(event) };
    frame.current.setPointerCapture(event.pointerId);
  };
  const moved = (event) => {
    if (begin.current && Math.abs(event.clientX - begin.current.x) > 5) setStretch({ a: begin.current.seq, b: seqAt(event) });
  };
  const up = (event) => {
    const started = begin.current;
    begin.current = null;
    setStretch(null);
    if (!started) return;
    const end = seqAt(event);
    if (Math.abs(event.clientX - started.x) > 5) onStretch(Math.min(started.seq, end), Math.max(started.seq, end));
    else onClick(started.seq);
  };
  return { stretch, handlers: { onPointerDown: down, onPointerMove: moved, onPointerUp: up } };
}

function useWheel(frame, handle, dependencies) {
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const turned = (event) => {
      // A page can be scrolled over the band; with a modifier it is zoomed, as maps do.
      if (!event.ctrlKey && !event.shiftKey && !event.metaKey) return;
      event.preventDefault();
      handle(event);
    };
    element.addEventListener("wheel", turned, { passive: false });
    return () => element.removeEventListener("wheel", turned);
  }, dependencies);
}
