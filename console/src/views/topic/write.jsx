import { useState } from "preact/hooks";
import { request, topicPath } from "../../api.js";
import { count } from "../../format.js";

export function Write({ name, refresh }) {
  const [data, setData] = useState('{\n  "text": "hello"\n}');
  const [tag, setTag] = useState("");
  const [node, setNode] = useState("");
  const [outcome, setOutcome] = useState(null);
  let problem = "";
  try {
    JSON.parse(data);
  } catch (error) {
    problem = error.message;
  }
  const submit = async (event) => {
    event.preventDefault();
    if (problem) return;
    // The text is sent as it stands: numbers keep all their digits.
    const fields = [`"data":${data}`, tag && `"tag":${JSON.stringify(tag)}`].filter(Boolean).join(",");
    const body = `{"records":[{${fields}}]${node ? `,"node":${JSON.stringify(node)}` : ""}}`;
    try {
      const answer = await request("POST", topicPath(name), body);
      setOutcome({ seq: answer.last_seq ?? answer.head_seq });
      refresh();
    } catch (error) {
      setOutcome({ error: error.message });
    }
  };
  return (
    <form onSubmit={submit} aria-label="Write a record">
      <div class="field">
        <label for="write-data">Data, as JSON</label>
        <textarea id="write-data" value={data} onInput={(event) => setData(event.target.value)} spellcheck={false} aria-invalid={problem !== ""} aria-describedby="write-problem" />
        <span id="write-problem" class="quiet">{problem}</span>
      </div>
      <div class="fields">
        <div class="field"><label for="write-tag">Tag</label><input id="write-tag" value={tag} onInput={(event) => setTag(event.target.value)} /></div>
        <div class="field"><label for="write-node">Node</label><input id="write-node" value={node} onInput={(event) => setNode(event.target.value)} /></div>
      </div>
      <div class="actions"><button class="main" disabled={problem !== ""}>Write</button></div>
      {outcome?.error && <p class="alarm" role="alert">{outcome.error}</p>}
      {outcome && !outcome.error && <p class="good-news" role="status">Written as seq {count(outcome.seq)}.</p>}
    </form>
  );
}
