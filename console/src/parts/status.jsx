import { bytes, count, duration, plural } from "../format.js";

const REASONS = {
  disk_full: "the disk is full",
  directory_replaced: "the data directory was replaced or moved away",
  storage_failed: "the storage failed",
};

export function Status({ overview, error }) {
  return (
    <div class="status" role="status" aria-label="Server">
      {error && error.status !== 401 && error.status !== 403 && error.code !== "not_ready" && (
        <span class="pill bad">The server does not answer; trying again</span>
      )}
      {error?.code === "not_ready" && <span class="pill warn">Recovering</span>}
      {overview && !(error && error.status !== 0) && <Facts server={overview.server} apiKey={overview.key} />}
    </div>
  );
}

function Facts({ server, apiKey }) {
  const { disk } = server;
  const used = disk.size_bytes ? 1 - disk.free_bytes / disk.size_bytes : 0;
  const soon = disk.full_in_ms !== null && disk.full_in_ms < 24 * 3600 * 1000;
  const who = apiKey.auth === "off" ? "No keys asked for" : `${apiKey.name}: ${apiKey.scopes.join(", ")}`;
  return (
    <>
      {server.writes ? (
        <span class="pill good">Writes on</span>
      ) : (
        <span class="pill bad">Writes off: {REASONS[server.reason] ?? server.reason}</span>
      )}
      <span class={soon || !server.writes ? "fact warned" : "fact"} title={`${Math.round(used * 100)} % of ${bytes(disk.size_bytes)} used; ${bytes(disk.reserve_bytes)} kept for removals`}>
        <b>{bytes(disk.free_bytes)}</b> free
        {disk.full_in_ms !== null && `, full in about ${duration(disk.full_in_ms)}`}
      </span>
      <span class="fact"><b>{count(server.topics)}</b> {server.topics === 1 ? "topic" : "topics"}, <b>{count(server.records)}</b> live, {bytes(server.bytes)}</span>
      {server.damage > 0 && <span class="pill bad">{plural(server.damage, "damaged stretch", "damaged stretches")} found</span>}
      <span class="fact">{who}{apiKey.prefixes?.length ? ` (${apiKey.prefixes.join(", ")})` : ""}</span>
      <span class="fact" title={`recovery took ${duration(server.recovery_ms)}`}>up {duration(server.now_ms - server.started_ms)}, recovered in {duration(server.recovery_ms)}</span>
      <span class="fact">version {server.version}</span>
      {server.data_dir && <span class="fact path" title={server.data_dir}>{server.data_dir}</span>}
    </>
  );
}
