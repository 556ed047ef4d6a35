// What stands in the way of data: a key that is asked for, a server that is still recovering.
import { useEffect, useRef, useState } from "preact/hooks";
import { request } from "../api.js";
import { usePoll } from "../poll.js";

export function AskForKey({ wrong, forbidden, onKey, onCancel }) {
  const field = useRef(null);
  const [key, setKey] = useState("");
  useEffect(() => field.current?.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    onKey(key.trim());
  };
  return (
    <section class="gate card">
      <h1>This server asks for a key</h1>
      {wrong && <p class="alarm" role="alert">The server does not know this key.</p>}
      {forbidden && <p class="alarm" role="alert">The server refused: {forbidden}</p>}
      <form onSubmit={submit}>
        <label for="key">Key</label>
        <input id="key" ref={field} type="password" autocomplete="off" value={key} onInput={(event) => setKey(event.target.value)} />
        <div class="actions">
          <button class="main" disabled={!key.trim()}>Use this key</button>
          {onCancel && <button type="button" onClick={onCancel}>Cancel</button>}
          {onCancel && <button type="button" onClick={() => onKey("")}>Forget the key</button>}
        </div>
      </form>
      <p class="quiet">It is kept for this tab only, and sent in a header: it never becomes part of an address.</p>
    </section>
  );
}

export function Recovering() {
  const { error } = usePoll((signal) => request("GET", "/v0/ready", undefined, { signal }), 500, ["ready"]);
  const progress = error?.detail?.replay_progress ?? 0;
  const percent = Math.floor(progress * 100);
  return (
    <section class="gate card">
      <h1>The server is recovering</h1>
      <p>It reads its journal before it answers. This page goes on by itself.</p>
      <progress max="100" value={percent} aria-label="Recovery" />
      <p class="quiet">{percent} %</p>
    </section>
  );
}
