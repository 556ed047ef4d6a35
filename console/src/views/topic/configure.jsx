// The configuration, and what a change of it will cost before it is made.
import { useState } from "preact/hooks";
import { request, topicPath } from "../../api.js";
import { plural } from "../../format.js";
import { useMay } from "../../parts/access.jsx";

const NUMBERS = [
  ["cap_records", "Cap, in records", "0: none"],
  ["cap_bytes", "Cap, in bytes", "0: none"],
  ["ttl_ms", "TTL, in ms", "0: kept for ever"],
  ["idempotency_window_ms", "Keys of retries are known for, in ms", ""],
];
const OF_QUEUES = [
  ["lease_ms", "Lease, in ms", ""],
  ["max_deliveries", "Deliveries before a job is given up", "0: no limit"],
  ["claim_jitter_ms", "Window for claims, in ms", ""],
];
const SWITCHES = [
  ["auto_create", "A write may make it again when it is gone"],
  ["auto_priority", "Topics that are read come first"],
  ["dedupe_node", "Readers may leave out their own records"],
];

export function Configure({ name, state, refresh }) {
  const may = useMay();
  const [draft, setDraft] = useState(null);
  const [cost, setCost] = useState(null);
  const [error, setError] = useState("");
  const [saved, setSaved] = useState(false);
  const config = draft ?? state.config;
  const isQueue = state.type === "queue";
  const change = (field, value) => {
    setDraft({ ...config, [field]: value });
    setCost(null);
    setSaved(false);
  };
  const body = () => ({ ...config, durable: undefined });
  const ask = async (dry) => {
    setError("");
    try {
      return await request("PUT", topicPath(name, dry ? "?dry_run=true" : ""), body());
    } catch (failure) {
      setError(failure.message);
      return null;
    }
  };
  const look = async (event) => {
    event.preventDefault();
    setCost(await ask(true));
  };
  const save = async () => {
    const answer = await ask(false);
    if (!answer) return;
    setDraft(null);
    setCost(null);
    setSaved(true);
    refresh();
  };
  const numeric = ([field, label, hint]) => (
    <div class="field" key={field}>
      <label for={`config-${field}`}>{label}</label>
      <input id={`config-${field}`} type="number" min="0" value={config[field]} disabled={!may("admin")} onInput={(event) => change(field, Number(event.target.value))} />
      {hint && <span class="quiet">{hint}</span>}
    </div>
  );
  const choice = (field, label, words) => (
    <div class="field">
      <label for={`config-${field}`}>{label}</label>
      <select id={`config-${field}`} value={config[field]} disabled={!may("admin")} onChange={(event) => change(field, event.target.value)}>
        {words.map((word) => <option value={word}>{word}</option>)}
      </select>
    </div>
  );
  return (
    <form onSubmit={look} aria-label="Configuration">
      <div class="fields">
        {choice("durability", "Class", ["ephemeral", "memory", "disk", "fsync"])}
        {NUMBERS.map(numeric)}
        {choice("discard", "At the cap", ["old", "reject"])}
        {isQueue && OF_QUEUES.map(numeric)}
        {isQueue && (
          <div class="field">
            <label for="config-dead_letter">Dead letters go to</label>
            <input id="config-dead_letter" value={config.dead_letter ?? ""} disabled={!may("admin")} onInput={(event) => change("dead_letter", event.target.value || null)} />
          </div>
        )}
      </div>
      {[...SWITCHES, ...(isQueue ? [["leases_durable", "Leases outlive a restart"]] : [])].map(([field, label]) => (
        <div class="check" key={field}>
          <input id={`config-${field}`} type="checkbox" checked={config[field]} disabled={!may("admin")} onChange={(event) => change(field, event.target.checked)} />
          <label for={`config-${field}`}>{label}</label>
        </div>
      ))}
      {may("admin") ? (
        <div class="actions">
          <button disabled={!draft}>See what it will cost</button>
          {draft && <button type="button" onClick={() => { setDraft(null); setCost(null); }}>Forget the changes</button>}
        </div>
      ) : (
        <p class="quiet">Only a key with the scope admin may change it.</p>
      )}
      {error && <p class="alarm" role="alert">{error}</p>}
      {saved && <p class="good-news" role="status">Saved.</p>}
      {cost && <Cost cost={cost} name={name} onSave={save} />}
    </form>
  );
}

function Cost({ cost, name, onSave }) {
  const sentences = (cost.warnings ?? []).map((sentence) => <p class="warning">{sentence}</p>);
  if (cost.removes) {
    return (
      <>
        {sentences}
        <Inline name={name} action={`Save, and remove ${plural(cost.removes, "record")}`} onConfirm={onSave}>
          This removes <b>{plural(cost.removes, "record")}</b> at once. Readers who have not got that far will be told of the loss.
        </Inline>
      </>
    );
  }
  return (
    <>
      {sentences}
      <p class="good-news" role="status">No record is removed by it now.</p>
      <div class="actions"><button type="button" class="main" onClick={onSave}>Save</button></div>
    </>
  );
}

// A form inside a form is no form: the confirmation asks by its button alone.
function Inline({ name, action, onConfirm, children }) {
  const [typed, setTyped] = useState("");
  return (
    <div class="confirm">
      <p class="warning" role="status">{children}</p>
      <div class="field">
        <label for="confirm-config">Type the name of the topic to go on: <code>{name}</code></label>
        <input id="confirm-config" value={typed} onInput={(event) => setTyped(event.target.value)} autocomplete="off" spellcheck={false} />
      </div>
      <div class="actions"><button type="button" class="danger" disabled={typed !== name} onClick={onConfirm}>{action}</button></div>
    </div>
  );
}
