// Routers as a table and as a picture: topics from left to right, with what flows between them.
import { useRef } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { topicAddress } from "../address.js";
import { count, short } from "../format.js";
import { forwarded } from "../history.js";
import { Pages } from "../parts/pages.jsx";
import { Spark } from "../parts/spark.jsx";
import { usePoll } from "../poll.js";

const MOST_DRAWN = 60;

export function Routers({ query }) {
  const path = withQuery("/v0/routers", { detail: "true", cursor: query.after });
  const { value, error } = usePoll((signal) => get(path, { signal }), 1000, [path]);
  const noted = useRef(null);
  if (value && noted.current !== value) {
    noted.current = value;
    for (const one of value.routers) forwarded.add(one.router, Date.now(), one.forwarded_total);
  }
  const routers = value?.routers ?? [];
  return (
    <>
      <section aria-labelledby="routers">
        <h1 id="routers">Routers</h1>
        {error && !value && <p class="alarm" role="alert">{error.message}</p>}
        {value && !routers.length && <p class="quiet">There are none. A router copies records from one topic to another as they come.</p>}
        {routers.length > 0 && <Picture routers={routers.slice(0, MOST_DRAWN)} />}
        {routers.length > MOST_DRAWN && <p class="quiet">The first {MOST_DRAWN} of this page are drawn.</p>}
      </section>
      {routers.length > 0 && (
        <section aria-label="Table of routers">
          <div class="scroll" tabindex="0" role="group" aria-label="Table of routers">
            <table>
              <caption class="hidden">Routers</caption>
              <thead>
                <tr>
                  <th scope="col">Router</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Only tags</th>
                  <th scope="col" class="number">Rate</th><th scope="col" class="number">Forwarded</th><th scope="col" class="number">Backlog</th><th scope="col">Guarantee</th><th scope="col">State</th>
                </tr>
              </thead>
              <tbody>{routers.map((one) => <Row key={one.router} router={one} />)}</tbody>
            </table>
          </div>
          <Pages view="routers" query={query} next={value.next_cursor} label="Pages of routers" />
        </section>
      )}
    </>
  );
}

const rateOf = (name) => {
  const rates = forwarded.rates(name).slice(-3);
  return rates.length ? rates.reduce((sum, one) => sum + one, 0) / rates.length : 0;
};

const shownFilter = (filter) => (filter === null ? "all" : Array.isArray(filter) ? filter[filter.length - 1] : filter);

function Row({ router }) {
  return (
    <tr>
      <th scope="row">{router.router}</th>
      <td><a class="row-link" href={topicAddress(router.source)}>{router.source}</a></td>
      <td><a href={topicAddress(router.dest)}>{router.dest}</a></td>
      <td>{shownFilter(router.filter)}</td>
      <td class="number rate"><Spark values={forwarded.rates(router.router)} /> <span>{short(rateOf(router.router))}/s</span></td>
      <td class="number">{count(router.forwarded_total)}</td>
      <td class="number">{count(router.behind)}</td>
      <td>{router.guarantee.replaceAll("_", " ")}</td>
      <td>{router.blocked ? <span class="pill bad">Blocked: no room</span> : router.behind ? <span class="pill warn">Behind</span> : <span class="pill good">Level</span>}</td>
    </tr>
  );
}

const WIDE = 190;
const HIGH = 34;
const GAP_X = 150;
const GAP_Y = 26;

function Picture({ routers }) {
  const places = layOut(routers);
  const spots = [...places.values()];
  const width = Math.max(...spots.map((spot) => spot.x)) + WIDE + 20;
  const height = Math.max(...spots.map((spot) => spot.y)) + HIGH + 24;
  return (
    <div class="scroll" tabindex="0" role="group" aria-label="Picture of the routers">
      <svg class="graph" width={width} height={height} role="img" aria-label={`${routers.length} routers between ${places.size} topics; the table below has the same`}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="arrow" d="M0 0 8 4 0 8z" /></marker>
        </defs>
        {routers.map((one) => <Edge key={one.router} router={one} from={places.get(one.source)} to={places.get(one.dest)} />)}
        {[...places].map(([name, { x, y }]) => (
          <g key={name} transform={`translate(${x} ${y})`}>
            <rect class="graph-topic" width={WIDE} height={HIGH} rx="7" />
            <text x="12" y="22">{name.length > 24 ? `${name.slice(0, 23)}…` : name}</text>
            <title>{name}</title>
          </g>
        ))}
      </svg>
    </div>
  );
}

function Edge({ router, from, to }) {
  const rate = rateOf(router.router);
  const backwards = to.x <= from.x;
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, backwards ? to.x + WIDE / 2 : to.x, backwards ? to.y + HIGH : to.y + HIGH / 2];
  const bend = backwards ? 60 : GAP_X / 2;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${backwards ? x2 : x2 - bend} ${backwards ? y2 + 50 : y2} ${x2} ${y2}`;
  const kind = router.blocked ? "blocked" : router.behind ? "behind" : "level";
  return (
    <g class={`edge ${kind}`}>
      <path d={path} stroke-width={1.5 + Math.min(Math.log10(1 + rate), 4)} marker-end="url(#arrow)" />
      <text x={(x1 + x2) / 2} y={(y1 + y2) / 2 - 8} text-anchor="middle">{short(rate)}/s{router.behind ? `, ${short(router.behind)} behind` : ""}</text>
      {router.blocked && <text class="stop" x={(x1 + x2) / 2} y={(y1 + y2) / 2 + 16} text-anchor="middle">■ blocked</text>}
      <title>{router.router}</title>
    </g>
  );
}

// Columns by the longest way from a topic that none feeds; a loop ends where it would begin again.
function layOut(routers) {
  const names = [...new Set(routers.flatMap((one) => [one.source, one.dest]))];
  const depth = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < Math.min(names.length, 12); round += 1) {
    for (const { source, dest } of routers) {
      if (depth.get(dest) <= depth.get(source) && depth.get(source) < 11) depth.set(dest, depth.get(source) + 1);
    }
  }
  const filled = new Map();
  const places = new Map();
  for (const name of names.sort((a, b) => depth.get(a) - depth.get(b))) {
    const column = depth.get(name);
    const row = filled.get(column) ?? 0;
    filled.set(column, row + 1);
    places.set(name, { x: column * (WIDE + GAP_X), y: 18 + row * (HIGH + GAP_Y) });
  }
  return places;
}
