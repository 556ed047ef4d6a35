import { useState } from "preact/hooks";
import { base, request } from "../api.js";
import { address, go, topicAddress } from "../address.js";
import { ago, bytes, count, duration, short } from "../format.js";
import { heads } from "../history.js";
import { Attention } from "../parts/attention.jsx";
import { Copy } from "../parts/copy.jsx";
import { Kind } from "../parts/patterns.jsx";
import { Spark } from "../parts/spark.jsx";
import { useMay } from "../parts/access.jsx";

export function Overview({ query, overview }) {
  const { value } = overview;
  const isEmpty = value.server.topics === 0;
  return (
    <>
      <h1 class="hidden">Overview</h1>
      {isEmpty ? (
        <Empty onWritten={overview.refresh} />
      ) : (
        <>
          <Attention items={value.attention} counts={value.attention_counts} />
          <Topics value={value} query={query} />
        </>
      )}
    </>
  );
}

function Topics({ value, query }) {
  const rows = value.topics;
  return (
    <section aria-labelledby="topics">
      <h2 id="topics">Topics{query.find ? ` with “${query.find}”` : ""}</h2>
      {rows.length === 0 ? (
        <p class="quiet">None{query.find ? "; names are compared as they are written, in any case of letters" : ""}.</p>
      ) : (
        <div class="scroll" tabindex="0" role="group" aria-labelledby="topics">
          <table class="topics">
            <thead>
              <tr>
                <th scope="col">Topic</th>
                <th scope="col">Class</th>
                <th scope="col" class="number">Rate</th>
                <th scope="col" class="number">Head</th>
                <th scope="col" class="number">Live</th>
                <th scope="col" class="number">Lost</th>
                <th scope="col" class="number">Deleted</th>
                <th scope="col" class="number">Worst lag</th>
                <th scope="col" class="number">Last write</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => <Row key={row.topic} row={row} now={value.server.now_ms} />)}
            </tbody>
          </table>
        </div>
      )}
      <Pages query={query} next={value.next_cursor} rows={rows.length} total={value.server.topics} />
    </section>
  );
}

function Row({ row, now }) {
  const rates = heads.rates(row.topic);
  const rate = rates.length ? rates.slice(-3).reduce((sum, one) => sum + one, 0) / Math.min(rates.length, 3) : 0;
  return (
    <tr>
      <th scope="row">
        <a class="row-link" href={topicAddress(row.topic)}>{row.topic}</a>
        {row.queue && <span class="badge">queue</span>}
      </th>
      <td><span class="class">{row.durability}</span></td>
      <td class="number rate">
        <Spark values={rates} /> <span>{rate >= 0.05 ? `${short(rate)}/s` : "0/s"}</span>
      </td>
      <td class="number">{count(row.head_seq)}</td>
      <td class="number" title={bytes(row.bytes)}>{count(row.count)}</td>
      <td class="number">{row.lost ? <Kind kind="lost">{count(row.lost)}</Kind> : <span class="zero">0</span>}</td>
      <td class="number">{row.deleted ? <Kind kind="deleted">{count(row.deleted)}</Kind> : <span class="zero">0</span>}</td>
      <td class="number"><Lag lag={row.lag} queue={row.queue} /></td>
      <td class="number">{ago(row.last_write_ts, now)}</td>
    </tr>
  );
}

function Lag({ lag, queue }) {
  if (queue && !lag) return <span title="jobs that wait for a worker">{count(queue.ready)} ready</span>;
  if (!lag) return <span class="zero">–</span>;
  if (!lag.records) return <span class="zero">none</span>;
  return <span title={lag.consumer}>{count(lag.records)} · {duration(lag.ms)}</span>;
}

function Pages({ query, next, rows, total }) {
  if (!next && !query.after) return null;
  return (
    <nav class="pages" aria-label="Pages of topics">
      {query.after && <a href={address("overview", "", { find: query.find })}>« First page</a>}
      <span class="quiet">{count(rows)} of {count(total)} topics</span>
      {next && <a href={address("overview", "", { find: query.find, after: next })}>Next page »</a>}
    </nav>
  );
}

function Empty({ onWritten }) {
  const may = useMay();
  const [problem, setProblem] = useState("");
  const server = base.replace(/\/$/, "");
  const commands = [
    ["Write a record", `curl -s ${server}/v0/topics/hello -H 'Content-Type: application/json' -d '{"records": [{"data": {"text": "first"}}]}'`],
    ["Read it back", `curl -s -X POST ${server}/v0/topics/hello/diff`],
    ["See what there is", `curl -s ${server}/v0/topics`],
  ];
  const write = async () => {
    try {
      await request("POST", "/v0/topics/hello", { records: [{ data: { text: "the first record", from: "the console" }, tag: "hello" }] });
      onWritten();
      go("topic", "hello");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return (
    <section class="empty card" aria-labelledby="empty">
      <h2 id="empty">Nothing has been written yet</h2>
      <p>A topic is there as soon as something is written to it. Three commands to begin with:</p>
      <ol>
        {commands.map(([title, command]) => (
          <li>
            <div class="command-title">{title} <Copy text={command} what={title.toLowerCase()} /></div>
            <pre tabindex="0"><code>{command}</code></pre>
          </li>
        ))}
      </ol>
      {may("write") && <p>Or let the console do it: <button type="button" class="main" onClick={write}>Write a first record</button></p>}
      {problem && <p class="alarm" role="alert">{problem}</p>}
    </section>
  );
}
