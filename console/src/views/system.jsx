// The server itself: metrics as plots, settings in force, keys by name, files on disk.
import { useRef } from "preact/hooks";
import { get } from "../api.js";
import { bytes, count, duration, moment, short } from "../format.js";
import { Series } from "../history.js";
import { Plot } from "../parts/plot.jsx";
import { useMay } from "../parts/access.jsx";
import { usePoll } from "../poll.js";

const series = new Series(300);
const perSecond = (name) => rate(series.points(name));
const seconds = (value) => duration(value * 1000);

// Name, points and how to show them; a counter is shown as what it grows by.
const PLOTS = [
  ["Records written, per second", [["written", "wal.frames", true]], short],
  ["Records read, per second", [["diff", 'topics_records_read_total{via="diff"}', true], ["stream", 'topics_records_read_total{via="stream"}', true], ["scan", 'topics_records_read_total{via="scan"}', true]], short],
  ["Records that left, per second", [["deleted", "topics_deleted_records_total", true], ["by a cap", 'topics_evicted_records_total{cause="cap"}', true], ["by age", 'topics_evicted_records_total{cause="ttl"}', true], ["lost", 'topics_evicted_records_total{cause="lost"}', true]], short],
  ["Journal, bytes per second", [["written", "wal.bytes_written", true]], bytes],
  ["Time of a sync", [["mean", "sync_ms", false]], duration],
  ["Connections", [["connections", "topics_http_connections", false], ["streams", "sse_connections", false]], short],
  ["Memory", [["resident", "process_resident_memory_bytes", false]], bytes],
  ["Processor, seconds per second", [["used", "process_cpu_seconds_total", true]], (value) => value.toFixed(2)],
  ["Free on the disk", [["free", "topics_disk_free_bytes", false]], bytes],
];

function rate(points) {
  return points.slice(1).map(([time, value], index) => [time, Math.max(0, ((value - points[index][1]) * 1000) / (time - points[index][0]))]);
}

export function System() {
  const may = useMay();
  const metrics = usePoll((signal) => get("/v0/metrics", { signal }), 2000, ["metrics"]);
  const noted = useRef(null);
  if (metrics.value && noted.current !== metrics.value) {
    noted.current = metrics.value;
    note(metrics.value);
  }
  return (
    <>
      <section aria-labelledby="system">
        <h1 id="system">System</h1>
        {metrics.error && !metrics.value && <p class="alarm" role="alert">{metrics.error.message}</p>}
        <div class="plots">
          {metrics.value && PLOTS.map(([title, lines, show]) => (
            <Plot key={title} title={title} show={show} series={lines.map(([name, of, counts]) => ({ name, points: counts ? perSecond(of) : series.points(of) }))} />
          ))}
        </div>
        {metrics.value && <Counters value={metrics.value} />}
      </section>
      {may("admin") && <Inside />}
    </>
  );
}

function note(value) {
  const now = Date.now();
  const { wal } = value;
  const told = { ...value.series, "wal.frames": wal.frames, "wal.bytes_written": wal.bytes_written, sse_connections: value.sse_connections };
  const before = series.points("sync_count").at(-1);
  const summed = series.points("sync_us").at(-1);
  if (before && wal.fsync_count > before[1]) told.sync_ms = (wal.fsync_micros_total - summed[1]) / (wal.fsync_count - before[1]) / 1000;
  series.add("sync_count", now, wal.fsync_count);
  series.add("sync_us", now, wal.fsync_micros_total);
  for (const [, lines] of PLOTS) for (const [, of] of lines) if (told[of] !== undefined) series.add(of, now, told[of]);
}

function Counters({ value }) {
  const shown = [
    ["Topics", count(value.topics)], ["Routers", count(value.routers)], ["Live records", count(value.records_live)],
    ["Live bytes", bytes(value.bytes_live)], ["Queues", count(value.queue_topics)], ["Leases", count(value.queue_leases_in_flight)],
    ["Waiting commits", count(value.wal.queue_depth)], ["Syncs", count(value.wal.fsyncs)], ["Recovery", seconds(value.series.topics_recovery_seconds ?? 0)],
    ["Load level", count(value.series.topics_load_level ?? 0)],
  ];
  return <dl class="facts">{shown.map(([title, text]) => <div><dt>{title}</dt><dd>{text}</dd></div>)}</dl>;
}

function Inside() {
  const { value, error } = usePoll((signal) => get("/v0/admin/system", { signal }), 10_000, ["inside"]);
  if (error && !value) return error.status === 403 ? null : <section><p class="alarm" role="alert">{error.message}</p></section>;
  if (!value) return null;
  return (
    <>
      <section aria-labelledby="settings">
        <h2 id="settings">Settings in force</h2>
        <div class="scroll" tabindex="0" role="group" aria-labelledby="settings">
          <table>
            <thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
            <tbody>
              {value.settings.map((one) => (
                <tr key={one.name}><th scope="row" class="mono">{one.name}</th><td class="mono">{shown(one.value)}</td><td>{one.is_default ? <span class="zero">default</span> : "chosen"}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <section aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        {value.keys.length === 0 ? <p class="quiet">No keys are asked for.</p> : (
          <table>
            <thead><tr><th scope="col">Key</th><th scope="col">Scopes</th><th scope="col">Names that begin with</th></tr></thead>
            <tbody>{value.keys.map((key) => <tr key={key.name}><th scope="row">{key.name}</th><td>{key.scopes.join(", ")}</td><td>{key.prefixes.join(", ") || "anything"}</td></tr>)}</tbody>
          </table>
        )}
      </section>
      <section aria-labelledby="files">
        <h2 id="files">Files</h2>
        {value.folders.map((folder) => (
          <details key={folder.folder}>
            <summary><b>{folder.folder}</b> {count(folder.count)} files, {bytes(folder.bytes)} <span class="quiet mono">{folder.path}</span></summary>
            <table>
              <caption class="hidden">The newest files of {folder.folder}</caption>
              <thead><tr><th scope="col">File</th><th scope="col" class="number">Size</th><th scope="col" class="number">Changed</th></tr></thead>
              <tbody>{folder.newest.map((file) => <tr key={file.name}><th scope="row" class="mono">{file.name}</th><td class="number">{bytes(file.bytes)}</td><td class="number">{moment(file.changed_ms)}</td></tr>)}</tbody>
            </table>
          </details>
        ))}
      </section>
    </>
  );
}

function shown(value) {
  if (value === null) return "unset";
  if (typeof value === "boolean") return value ? "on" : "off";
  return String(value);
}
