// A queue: what waits, who holds what until when; and dead letters, which can go back.
import { useState } from "preact/hooks";
import { get, request, topicPath, withQuery } from "../../api.js";
import { topicAddress } from "../../address.js";
import { count, duration, plural } from "../../format.js";
import { usePoll } from "../../poll.js";
import { useMay } from "../../parts/access.jsx";
import { Record } from "../../parts/record.jsx";

export function Jobs({ name, state, refresh }) {
  return (
    <>
      {state.queue && <Counters state={state} />}
      {state.queue && <Leases state={state} />}
      <Peek name={name} state={state} />
      <Redrive name={name} state={state} refresh={refresh} />
    </>
  );
}

function Counters({ state }) {
  const { queue, config } = state;
  const delayed = Math.max(state.count - queue.ready - queue.in_flight, 0);
  return (
    <dl class="facts large">
      <div><dt>Ready</dt><dd>{count(queue.ready)}</dd></div>
      <div><dt>In flight</dt><dd>{count(queue.in_flight)}</dd></div>
      <div><dt>Delayed</dt><dd>{count(delayed)}</dd></div>
      <div><dt>Given up</dt><dd>{count(queue.dead_lettered)}</dd></div>
      {config.dead_letter && <div><dt>Dead letters</dt><dd><a href={topicAddress(config.dead_letter, { tab: "queue" })}>{config.dead_letter}</a></dd></div>}
    </dl>
  );
}

function Leases({ state }) {
  const now = Date.now();
  return (
    <>
      <h2>In flight</h2>
      {state.leases.length === 0 ? (
        <p class="quiet">No job is with a worker.</p>
      ) : (
        <div class="scroll" tabindex="0" role="group" aria-label="Leases">
          <table>
            <caption class="hidden">Leases</caption>
            <thead><tr><th scope="col" class="number">Seq</th><th scope="col">Worker</th><th scope="col" class="number">Deadline</th><th scope="col" class="number">Deliveries</th><th scope="col">Lease</th></tr></thead>
            <tbody>
              {state.leases.map((lease) => (
                <tr key={lease.$seq}>
                  <th scope="row" class="number">{count(lease.$seq)}</th>
                  <td>{lease.node}</td>
                  <td class="number">{lease.deadline > now ? `in ${duration(lease.deadline - now)}` : "over"}</td>
                  <td class="number">{count(lease.deliveries)}</td>
                  <td class="mono">{lease.lease_id}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {state.more_leases && <p class="quiet">and more</p>}
        </div>
      )}
    </>
  );
}

function Peek({ name, state }) {
  const path = withQuery(topicPath(name, "/records"), { from_seq: Math.max(state.earliest_seq - 1, 0), limit: 20, include_tags: "true" });
  const { value } = usePoll((signal) => get(path, { signal }), 5000, [path]);
  const held = new Set(state.leases.map((lease) => lease.$seq));
  const jobs = value?.records ?? [];
  return (
    <>
      <h2>The oldest</h2>
      <p class="quiet">Looking at a job does not lease it.</p>
      {jobs.length === 0 ? <p class="quiet">None.</p> : (
        <div class="records" role="region" aria-label="The oldest jobs" tabindex="0">
          {jobs.map((job) => <div class={held.has(job.$seq) ? "held" : ""} key={job.$seq}><Record record={job} /></div>)}
        </div>
      )}
    </>
  );
}

function Redrive({ name, state, refresh }) {
  const may = useMay();
  const [most, setMost] = useState("");
  const [match, setMatch] = useState("");
  const [into, setInto] = useState("");
  const [outcome, setOutcome] = useState(null);
  if (!may("write") || state.type === "queue" || (state.count === 0 && !outcome)) return null;
  const act = async (event) => {
    event.preventDefault();
    try {
      const body = { ...(most && { max: Number(most) }), ...(match && { match }), ...(into && { into }) };
      setOutcome(await request("POST", topicPath(name, "/redrive"), body));
      refresh();
    } catch (error) {
      setOutcome({ error: error.message });
    }
  };
  return (
    <form onSubmit={act} aria-label="Redrive">
      <h2>Send dead letters back</h2>
      <p class="quiet">Each goes back into the queue that it came from, and its deliveries are counted anew.</p>
      <div class="fields">
        <div class="field"><label for="redrive-max">At most</label><input id="redrive-max" inputmode="numeric" value={most} onInput={(event) => setMost(event.target.value.replace(/\D/g, ""))} placeholder="all" /></div>
        <div class="field"><label for="redrive-match">With the tag</label><input id="redrive-match" value={match} onInput={(event) => setMatch(event.target.value)} /></div>
        <div class="field"><label for="redrive-into">Into another queue</label><input id="redrive-into" value={into} onInput={(event) => setInto(event.target.value)} /></div>
      </div>
      <div class="actions"><button>Redrive</button></div>
      {outcome?.error && <p class="alarm" role="alert">{outcome.error}</p>}
      {outcome && !outcome.error && <p class="good-news" role="status">{plural(outcome.moved, "job")} moved back{outcome.skipped?.length ? `, ${plural(outcome.skipped.length, "job")} skipped` : ""}.</p>}
    </form>
  );
}
