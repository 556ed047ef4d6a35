import { ago, count, duration } from "../../format.js";

export function Readers({ name, state }) {
  if (!state.readers.length) {
    return <p class="quiet">No named cursors. A consumer sets one with <code>PUT /v0/topics/{name}/cursors/…</code>; it shows here how far it has come.</p>;
  }
  return (
    <div class="scroll" tabindex="0" role="group" aria-label="Cursors of this topic">
      <table>
        <caption class="hidden">Cursors of this topic</caption>
        <thead><tr><th scope="col">Consumer</th><th scope="col" class="number">Read up to</th><th scope="col" class="number">Lag</th><th scope="col" class="number">Moved</th><th scope="col">Stands</th></tr></thead>
        <tbody>
          {state.readers.map((cursor) => (
            <tr key={cursor.consumer}>
              <th scope="row">{cursor.consumer}</th>
              <td class="number">{count(cursor.seq)}</td>
              <td class="number">{count(cursor.lag)}</td>
              <td class="number">{ago(cursor.updated_ts)}</td>
              <td>{where(cursor, state)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function where(cursor, state) {
  if (cursor.epoch !== state.epoch) return "in an earlier life of the topic";
  if (cursor.seq + 1 < state.earliest_seq) return `below the floor, ${count(state.earliest_seq)}`;
  if (cursor.lag === 0) return "at the head";
  const { config } = state;
  if (config.ttl_ms) return `in what is kept for ${duration(config.ttl_ms)}`;
  return "in what is live";
}
