import { address, topicAddress } from "../address.js";
import { ago, count, duration, plural } from "../format.js";

const REASONS = {
  cap: "a cap or a restart",
  ttl: "age",
  mixed: "caps and age",
  source_trim: "loss in a router's source",
  recreated: "a topic that was made anew",
};

const SHOW = {
  told: (item) => [
    "Loss reached readers",
    <>
      <Topic name={item.topic} /> told {plural(item.tombstones, "time")} that {plural(item.missed, "record")} are gone,
      by {REASONS[item.reason] ?? item.reason}, last {ago(item.last_ms)}
    </>,
  ],
  overtaken: (item) => [
    item.in_ms ? "About to be overtaken" : "Overtaken",
    item.in_ms ? (
      <>
        <b>{item.consumer}</b> loses seq {count(item.seq)} of <Topic name={item.topic} query={{ seq: item.seq }} /> in about{" "}
        {duration(item.in_ms)}, by {item.by === "ttl" ? "age" : "the cap"}
      </>
    ) : (
      <>
        <b>{item.consumer}</b> has lost records of <Topic name={item.topic} query={{ seq: item.seq }} /> from seq {count(item.seq)} on, and
        has not been told yet
      </>
    ),
  ],
  damage: (item) => [
    "Records lost",
    <><Topic name={item.topic} /> lost {plural(item.lost, "record")} to a crash or a damaged file</>,
  ],
  failed: (item) => [
    "Pipeline failed",
    <>
      <a href={address("cursors", "", { consumer: item.pipeline })}>{item.pipeline}</a> ({item.does}) failed {ago(item.since_ms)}
      {item.why && <>: {item.why}</>}
    </>,
  ],
  blocked: (item) => [
    "Router blocked",
    <>
      <a href={address("routers")}>{item.router}</a> waits for room in <Topic name={item.dest} />, {plural(item.behind, "record")} behind
    </>,
  ],
  stalled: (item) => [
    "Stopped",
    <>
      <b>{item.consumer}</b> has not moved on <Topic name={item.topic} /> for {duration(item.age_ms)}, {plural(item.lag, "record")} behind:
      a consumer that failed?
    </>,
  ],
  dead_letters: (item) => [
    "Dead letters",
    <>
      <Topic name={item.dead_letter} query={{ tab: "queue" }} /> has {plural(item.count, "job")} that <Topic name={item.topic} query={{ tab: "queue" }} /> gave up
    </>,
  ],
};

const SEVERE = new Set(["told", "overtaken", "damage", "failed"]);

function Topic({ name, query }) {
  return <a href={topicAddress(name, query)}>{name}</a>;
}

export function Attention({ items, counts }) {
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const left = total - items.length;
  return (
    <section aria-labelledby="attention">
      <h2 id="attention">Needs attention</h2>
      {items.length === 0 ? (
        <p class="calm"><span aria-hidden="true">✓</span> Nothing. No loss reached a reader in the last day, and no cursor is about to be overtaken.</p>
      ) : (
        <ul class="attention">
          {items.map((item) => {
            const [title, text] = SHOW[item.kind](item);
            return (
              <li class={SEVERE.has(item.kind) ? "severe" : ""} key={`${item.kind} ${item.topic ?? item.pipeline} ${item.consumer ?? item.router ?? ""}`}>
                <strong>{title}</strong> <span>{text}</span>
              </li>
            );
          })}
          {left > 0 && <li class="more">and {plural(left, "more like these", "more like these")}</li>}
        </ul>
      )}
    </section>
  );
}
