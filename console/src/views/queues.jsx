import { get, withQuery } from "../api.js";
import { topicAddress } from "../address.js";
import { ago, count } from "../format.js";
import { Pages } from "../parts/pages.jsx";
import { Kind } from "../parts/patterns.jsx";
import { usePoll } from "../poll.js";

export function Queues({ query }) {
  const path = withQuery("/v0/overview", { type: "queue", cursor: query.after });
  const { value, error } = usePoll((signal) => get(path, { signal }), 1000, [path]);
  return (
    <section aria-labelledby="queues">
      <h1 id="queues">Queues</h1>
      {error && !value && <p class="alarm" role="alert">{error.message}</p>}
      {value?.topics.length === 0 && <p class="quiet">There are none. A queue is a topic that was made with <code>"type": "queue"</code>.</p>}
      {value?.topics.length > 0 && (
        <div class="scroll" tabindex="0" role="group" aria-labelledby="queues">
          <table>
            <thead>
              <tr>
                <th scope="col">Queue</th>
                <th scope="col" class="number">Ready</th>
                <th scope="col" class="number">In flight</th>
                <th scope="col" class="number">Delayed</th>
                <th scope="col" class="number">Given up</th>
                <th scope="col" class="number">Lost</th>
                <th scope="col"><span class="hidden">Shares of ready, in flight and delayed</span></th>
                <th scope="col" class="number">Last write</th>
              </tr>
            </thead>
            <tbody>{value.topics.map((row) => <Row key={row.topic} row={row} now={value.server.now_ms} />)}</tbody>
          </table>
        </div>
      )}
      <Pages view="queues" query={query} next={value?.next_cursor} label="Pages of queues" />
    </section>
  );
}

function Row({ row, now }) {
  const { ready, in_flight: held, dead_lettered: dead } = row.queue;
  const delayed = Math.max(row.count - ready - held, 0);
  return (
    <tr>
      <th scope="row"><a class="row-link" href={topicAddress(row.topic, { tab: "queue" })}>{row.topic}</a></th>
      <td class="number">{count(ready)}</td>
      <td class="number">{count(held)}</td>
      <td class="number">{count(delayed)}</td>
      <td class="number">{dead ? <b class="warned">{count(dead)}</b> : <span class="zero">0</span>}</td>
      <td class="number">{row.lost ? <Kind kind="lost">{count(row.lost)}</Kind> : <span class="zero">0</span>}</td>
      <td class="shares"><Shares parts={[["live", ready], ["trim", held], ["ttl", delayed]]} /></td>
      <td class="number">{ago(row.last_write_ts, now)}</td>
    </tr>
  );
}

function Shares({ parts }) {
  const total = parts.reduce((sum, [, value]) => sum + value, 0) || 1;
  let left = 0;
  return (
    <svg class="share" width="120" height="12" aria-hidden="true" focusable="false">
      {parts.map(([kind, value]) => {
        const wide = (value / total) * 120;
        left += wide;
        return <rect x={left - wide} width={wide} height="12" fill={`url(#fill-${kind})`} />;
      })}
    </svg>
  );
}
