import { useState } from "preact/hooks";
import { get, topicPath } from "../api.js";
import { address, replaceQuery, topicAddress } from "../address.js";
import { ago, bytes, count, duration } from "../format.js";
import { useViewKeys } from "../keyboard.js";
import { Band } from "../parts/band.jsx";
import { Picked } from "../parts/picked.jsx";
import { useMay } from "../parts/access.jsx";
import { usePoll } from "../poll.js";
import { Configure } from "./topic/configure.jsx";
import { Delete } from "./topic/delete.jsx";
import { Jobs } from "./topic/jobs.jsx";
import { Readers } from "./topic/readers.jsx";
import { Records } from "./topic/records.jsx";
import { Write } from "./topic/write.jsx";

export function Topic({ name, query, overview }) {
  const answer = usePoll((signal) => look(name, signal), 1000, [name]);
  const { value, error } = answer;
  if (!value) {
    return (
      <section>
        <h1>{name}</h1>
        {error?.status === 404 ? <Absent name={name} /> : error ? <p class="alarm" role="alert">{error.message}</p> : <p class="quiet">Asking…</p>}
      </section>
    );
  }
  if (error?.status === 404) {
    return <section><h1>{name}</h1><p class="alarm" role="alert">This topic was deleted.</p></section>;
  }
  return <Shown name={name} query={query} state={value} refresh={answer.refresh} now={overview.value.server.now_ms} />;
}

async function look(name, signal) {
  const state = await get(topicPath(name, "?touch=false"), { signal });
  const [readers, leases] = await Promise.all([
    get(topicPath(name, "/cursors"), { signal }),
    state.type === "queue" ? get(topicPath(name, "/leases?page_size=200"), { signal }) : { leases: [] },
  ]);
  const cursors = readers.cursors.filter((cursor) => cursor.epoch === state.epoch);
  return { ...state, cursors, readers: readers.cursors, leases: leases.leases, more_leases: leases.next_cursor !== undefined };
}

function Shown({ name, query, state, refresh, now }) {
  const may = useMay();
  const [picked, setPicked] = useState(null);
  const tabs = [
    ["records", "Records", true],
    ["queue", "Jobs", state.type === "queue" || name.includes("dead") || query.tab === "queue"],
    ["readers", "Cursors", true],
    ["write", "Write", may("write")],
    ["delete", "Delete", may("delete")],
    ["config", "Configuration", true],
  ].filter(([, , offered]) => offered);
  const tab = tabs.some(([id]) => id === query.tab) ? query.tab : "records";
  useViewKeys((key) => {
    const chosen = tabs[Number(key) - 1];
    if (chosen) location.hash = topicAddress(name, { ...query, tab: chosen[0] });
    return chosen !== undefined;
  }, [name, JSON.stringify(query), tabs.length]);
  const window = { from: number(query.from), to: number(query.to) };
  return (
    <>
      <section aria-labelledby="topic-name">
        <div class="topic-head">
          <h1 id="topic-name">{name}{state.type === "queue" && <span class="badge">queue</span>}</h1>
          <Facts state={state} now={now} />
        </div>
        <Band
          name={name}
          state={state}
          window={window}
          onWindow={(next) => replaceQuery({ from: next.from, to: next.to })}
          picked={picked}
          onPick={setPicked}
          cursors={state.cursors}
          leases={state.leases}
        />
        {picked && (
          <Picked
            key={`${picked.from}-${picked.to}`}
            name={name}
            column={picked}
            onZoom={() => replaceQuery({ from: picked.from, to: picked.to })}
            onClose={() => setPicked(null)}
          />
        )}
      </section>
      <section aria-label="Parts of the topic">
        <nav class="tabs" aria-label="Parts of the topic">
          {tabs.map(([id, title], index) => (
            <a href={topicAddress(name, { ...query, tab: id })} aria-current={tab === id ? "page" : undefined} title={`key ${index + 1}`}>{title}</a>
          ))}
        </nav>
        {tab === "records" && <Records name={name} state={state} query={query} />}
        {tab === "queue" && <Jobs name={name} state={state} refresh={refresh} />}
        {tab === "readers" && <Readers name={name} state={state} />}
        {tab === "write" && <Write name={name} refresh={refresh} />}
        {tab === "delete" && <Delete name={name} state={state} refresh={refresh} />}
        {tab === "config" && <Configure name={name} state={state} refresh={refresh} />}
      </section>
    </>
  );
}

const number = (text) => (/^\d{1,19}$/.test(text ?? "") ? Number(text) : undefined);

function Facts({ state, now }) {
  const { config } = state;
  const limits = [
    config.cap_records && `at most ${count(config.cap_records)} records`,
    config.cap_bytes && `at most ${bytes(config.cap_bytes)}`,
    config.ttl_ms && `for ${duration(config.ttl_ms)}`,
  ].filter(Boolean);
  return (
    <dl class="facts">
      <div><dt>Head</dt><dd>{count(state.head_seq)}</dd></div>
      <div><dt>Live</dt><dd>{count(state.count)}</dd></div>
      <div><dt>Size</dt><dd>{bytes(state.bytes)}</dd></div>
      <div><dt>Class</dt><dd>{config.durability}</dd></div>
      <div><dt>Kept</dt><dd>{limits.join(", ") || "for ever"}</dd></div>
      <div><dt>Last write</dt><dd>{ago(state.last_write_ts, Math.max(now, state.last_write_ts ?? 0))}</dd></div>
      <div><dt>Life</dt><dd>{count(state.epoch)}</dd></div>
    </dl>
  );
}

function Absent({ name }) {
  const may = useMay();
  return (
    <>
      <p>There is no topic of this name{may("write") ? "; it is made by the first write" : ""}.</p>
      {may("write") && <Write name={name} refresh={() => {}} />}
      <p><a href={address("overview")}>Back to the overview</a></p>
    </>
  );
}
