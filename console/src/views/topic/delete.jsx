// Deleting is looked at first: nothing goes before a dry run has said what would, and the name was typed.
import { useState } from "preact/hooks";
import { request, topicPath } from "../../api.js";
import { go } from "../../address.js";
import { bytes, count, plural } from "../../format.js";

export function Delete({ name, state, refresh }) {
  return (
    <>
      <DeleteRecords name={name} state={state} refresh={refresh} />
      <DropTopic name={name} />
    </>
  );
}

function DeleteRecords({ name, state, refresh }) {
  const [before, setBefore] = useState("");
  const [match, setMatch] = useState("");
  const [seqs, setSeqs] = useState("");
  const [preview, setPreview] = useState(null);
  const [outcome, setOutcome] = useState("");
  const [error, setError] = useState("");
  const changed = (set) => (event) => {
    set(event.target.value);
    setPreview(null);
    setOutcome("");
  };
  const selector = () => ({
    ...(before && { before_seq: Number(before) }),
    ...(match && { match }),
    ...(seqs.trim() && { seqs: seqs.split(/[\s,]+/).filter(Boolean).map(Number) }),
  });
  const look = async (event) => {
    event.preventDefault();
    setError("");
    try {
      setPreview(await request("POST", topicPath(name, "/delete"), { ...selector(), dry_run: true }));
    } catch (failure) {
      setError(failure.message);
    }
  };
  const act = async () => {
    try {
      const answer = await request("POST", topicPath(name, "/delete"), selector());
      setOutcome(`${plural(answer.deleted, "record")} deleted.`);
      setPreview(null);
      refresh();
    } catch (failure) {
      setError(failure.message);
    }
  };
  const isEmpty = !before && !match && !seqs.trim();
  return (
    <fieldset>
      <legend>Delete records</legend>
      <form onSubmit={look}>
        <p class="quiet">Conditions count together. Readers are not told of what was deleted.</p>
        <div class="fields">
          <div class="field"><label for="delete-before">Below seq</label><input id="delete-before" inputmode="numeric" value={before} onInput={changed(setBefore)} placeholder={`up to ${count(state.head_seq + 1)}`} /></div>
          <div class="field"><label for="delete-match">With the tag</label><input id="delete-match" value={match} onInput={changed(setMatch)} placeholder="user:7, or user:*" /></div>
          <div class="field"><label for="delete-seqs">Only these seqs</label><input id="delete-seqs" value={seqs} onInput={changed(setSeqs)} placeholder="12, 15, 99" /></div>
        </div>
        <div class="actions"><button disabled={isEmpty}>See what would go</button></div>
      </form>
      {error && <p class="alarm" role="alert">{error}</p>}
      {outcome && <p class="good-news" role="status">{outcome}</p>}
      {preview && (
        <Confirm name={name} action={`Delete ${plural(preview.deleted, "record")}`} disabled={!preview.deleted} onConfirm={act}>
          {preview.deleted ? <>This deletes <b>{plural(preview.deleted, "record")}</b>; {plural(preview.count, "record")} ({bytes(preview.bytes)}) would be left.</> : "Nothing would be deleted."}
        </Confirm>
      )}
    </fieldset>
  );
}

function DropTopic({ name }) {
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState("");
  const look = async () => {
    try {
      setPreview(await request("DELETE", topicPath(name, "?dry_run=true")));
    } catch (failure) {
      setError(failure.message);
    }
  };
  const act = async () => {
    try {
      await request("DELETE", topicPath(name));
      go("overview");
    } catch (failure) {
      setError(failure.message);
    }
  };
  return (
    <fieldset>
      <legend>Delete the topic</legend>
      <p class="quiet">With all its records, leases and routers. Named cursors stay, and tell their consumers when they come back.</p>
      <div class="actions"><button type="button" onClick={look}>See what would go</button></div>
      {error && <p class="alarm" role="alert">{error}</p>}
      {preview && (
        <Confirm name={name} action="Delete the topic" onConfirm={act}>
          This deletes <b>{plural(preview.count, "record")}</b> ({bytes(preview.bytes)})
          {preview.routers_removed.length ? <> and the routers {preview.routers_removed.join(", ")}</> : ""}.
        </Confirm>
      )}
    </fieldset>
  );
}

export function Confirm({ name, action, disabled, onConfirm, children }) {
  const [typed, setTyped] = useState("");
  return (
    <form class="confirm" onSubmit={(event) => { event.preventDefault(); if (typed === name) onConfirm(); }}>
      <p class="warning" role="status">{children}</p>
      <div class="field"><label for={`confirm-${action}`}>Type the name of the topic to go on: <code>{name}</code></label>
        <input id={`confirm-${action}`} value={typed} onInput={(event) => setTyped(event.target.value)} autocomplete="off" spellcheck={false} /></div>
      <div class="actions"><button class="danger" disabled={disabled || typed !== name}>{action}</button></div>
    </form>
  );
}
