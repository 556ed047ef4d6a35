// What became of the stretch that was clicked: why it is gone, and when.
import { get, topicPath, withQuery } from "../api.js";
import { count, duration, moment, plural, range } from "../format.js";
import { TITLES, WHY } from "../kinds.js";
import { usePoll } from "../poll.js";
import { missingKinds } from "./band.jsx";
import { Kind } from "./patterns.jsx";
import { Record } from "./record.jsx";

export function Picked({ name, column, onZoom, onClose }) {
  const kinds = missingKinds(column);
  const isOne = column.from === column.to;
  return (
    <div class="picked-box" role="region" aria-label="The chosen stretch">
      <div class="picked-head">
        <h2>{isOne ? `Seq ${count(column.from)}` : `${range(column.from, column.to).replace("seqs", "Seqs")}: ${plural(column.to - column.from + 1, "record")}`}</h2>
        <span class="actions">
          {!isOne && <button type="button" class="small" onClick={onZoom}>Zoom to it</button>}
          <button type="button" class="small" onClick={onClose}>Close</button>
        </span>
      </div>
      {kinds.length === 0 && !isOne && <p><Kind kind="live">All of them are live.</Kind></p>}
      {kinds.length > 0 && <Ranges name={name} column={column} />}
      {isOne && column.live === 1 && <One name={name} seq={column.from} />}
    </div>
  );
}

function Ranges({ name, column }) {
  const path = withQuery(topicPath(name, "/ledger"), { from: column.from, to: column.to, page_size: 50, times: "true" });
  const { value, error } = usePoll((signal) => get(path, { signal }), 0, [path]);
  if (error) return <p class="alarm">{error.message}</p>;
  if (!value) return <p class="quiet">Asking…</p>;
  return (
    <ul class="why">
      {missingKinds(column).map((kind) => {
        const ranges = value.ranges.filter((one) => one.kind === kind);
        return (
          <li key={kind}>
            <Kind kind={kind}><b>{TITLES[kind]}: {count(column[kind])}</b></Kind>
            <p>{column[kind] === 1 ? "It" : "They"} {column[kind] === 1 ? WHY[kind].replace(/^were/, "was").replace(/^became/, "became") : WHY[kind]}</p>
            {ranges.slice(0, 8).map((one) => (
              <p class="quiet when" key={one.from}>{range(one.from, one.to)}{when(one)}</p>
            ))}
            {ranges.length > 8 && <p class="quiet when">and more; zoom in to see each</p>}
          </li>
        );
      })}
    </ul>
  );
}

function when({ kind, gone_after_ms: after, gone_by_ms: by }) {
  if (!by) return "";
  if (!after) return kind === "lost" || kind === "trim" ? `, found to be gone at ${moment(by)}` : `, gone before ${moment(by)}`;
  return by - after < 2000 ? `, gone at ${moment(by)}` : `, gone between ${moment(after)} and ${moment(by)} (${duration(by - after)})`;
}

function One({ name, seq }) {
  const path = topicPath(name, `/records/${seq}`);
  const { value, error } = usePoll((signal) => get(path, { signal }), 0, [path]);
  if (error) return <p class="alarm">{error.message}</p>;
  return value ? <Record record={value.record} open /> : <p class="quiet">Asking…</p>;
}
