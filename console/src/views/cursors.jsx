// Named cursors of all topics: consumers, and pipelines, which have a cursor of their name.
import { useRef } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { replaceQuery, topicAddress } from "../address.js";
import { count, duration, moment, short } from "../format.js";
import { lags } from "../history.js";
import { Pages } from "../parts/pages.jsx";
import { Plot } from "../parts/plot.jsx";
import { Spark } from "../parts/spark.jsx";
import { usePoll } from "../poll.js";

const PLOTTED = 6;
const nameOf = (cursor) => `${cursor.consumer} on ${cursor.topic}`;

export function Cursors({ query }) {
  const path = withQuery("/v0/cursors", { consumer: query.consumer, prefix: query.prefix, cursor: query.after });
  const { value, error } = usePoll((signal) => get(path, { signal }), 1000, [path]);
  const noted = useRef(null);
  if (value && noted.current !== value) {
    noted.current = value;
    const now = Date.now();
    for (const cursor of value.cursors) if (cursor.lag !== null) lags.add(nameOf(cursor), now, cursor.lag);
  }
  const cursors = value?.cursors ?? [];
  const furthest = [...cursors].filter((one) => one.lag !== null).sort((a, b) => b.lag - a.lag).slice(0, PLOTTED);
  return (
    <>
      <section aria-labelledby="cursors">
        <h1 id="cursors">Cursors and pipelines</h1>
        <p class="quiet">How far consumers say they have come. A pipeline has a cursor of its name on every topic that it follows.</p>
        <form class="fields filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
          <div class="field"><label for="cursor-consumer">Consumer or pipeline</label><input id="cursor-consumer" value={query.consumer ?? ""} onChange={(event) => replaceQuery({ consumer: event.target.value.trim(), after: "" })} /></div>
          <div class="field"><label for="cursor-prefix">Topics that begin with</label><input id="cursor-prefix" value={query.prefix ?? ""} onChange={(event) => replaceQuery({ prefix: event.target.value.trim(), after: "" })} /></div>
        </form>
        {error && !value && <p class="alarm" role="alert">{error.message}</p>}
        {value && !cursors.length && <p class="quiet">None.</p>}
        {furthest.length > 0 && <Plot title="Lag in records, of those furthest behind" series={furthest.map((one) => ({ name: nameOf(one), points: lags.points(nameOf(one)) }))} show={short} />}
      </section>
      <Pipelines only={query.consumer} />
      {cursors.length > 0 && (
        <section aria-label="Table of cursors">
          <div class="scroll" tabindex="0" role="group" aria-label="Table of cursors">
            <table>
              <caption class="hidden">Cursors</caption>
              <thead><tr><th scope="col">Consumer</th><th scope="col">Topic</th><th scope="col" class="number">Read up to</th><th scope="col" class="number">Lag</th><th scope="col" class="number">Over time</th><th scope="col" class="number">Set</th></tr></thead>
              <tbody>
                {cursors.map((cursor) => (
                  <tr key={nameOf(cursor)}>
                    <th scope="row">{cursor.consumer}</th>
                    <td><a class="row-link" href={topicAddress(cursor.topic, { tab: "readers" })}>{cursor.topic}</a></td>
                    <td class="number">{count(cursor.seq)}</td>
                    <td class="number">{cursor.lag === null ? <span class="zero">the topic is gone</span> : count(cursor.lag)}</td>
                    <td class="number"><Spark values={lags.points(nameOf(cursor)).map(([, lag]) => lag)} /></td>
                    <td class="number">{duration(cursor.age_ms)} ago</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <Pages view="cursors" query={query} next={value.next_cursor} label="Pages of cursors" />
        </section>
      )}
    </>
  );
}

// What pipelines said last of themselves: one that failed may be gone.
function Pipelines({ only }) {
  const { value } = usePoll((signal) => get("/v0/pipelines?page_size=1000", { signal }), 1000, []);
  const pipelines = (value?.pipelines ?? []).filter((one) => !only || one.pipeline === only);
  if (!pipelines.length) return null;
  return (
    <section aria-labelledby="pipelines">
      <h2 id="pipelines">Pipelines</h2>
      <div class="scroll" tabindex="0" role="group" aria-label="Table of pipelines">
        <table>
          <caption class="hidden">Pipelines</caption>
          <thead><tr><th scope="col">Pipeline</th><th scope="col">Does</th><th scope="col">State</th><th scope="col">Since</th><th scope="col" class="number">Heard of</th></tr></thead>
          <tbody>
            {pipelines.map((one) => (
              <tr key={one.pipeline}>
                <th scope="row">{one.pipeline}</th>
                <td>{one.kind}</td>
                <td>{one.state === "failed" ? <strong class="failed">failed{one.why && `: ${one.why}`}</strong> : one.state}</td>
                <td>{moment(one.since_ms)}</td>
                <td class="number">{duration(one.age_ms)} ago</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
