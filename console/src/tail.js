// A live tail by fetch, so that the key can be in a header. It comes back by itself, where it was.
import { parseExactly, send, withQuery } from "./api.js";

export function follow(topic, { from, tag, onRecords, onGap, onState }) {
  const abort = new AbortController();
  let lastId = "";
  let next = `${topic}@${from}`;
  const run = async () => {
    let pause = 500;
    while (!abort.signal.aborted) {
      try {
        onState("connecting");
        const path = withQuery("/v0/tail", { topic: next, tag, include_tags: "true" });
        const headers = { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) };
        const answer = await send("GET", path, undefined, { signal: abort.signal, headers });
        if (!answer.ok) throw new Error((await answer.json()).error?.message ?? `the server answered ${answer.status}`);
        onState("live");
        pause = 500;
        for await (const event of events(answer.body)) {
          if (abort.signal.aborted) return;
          if (event.id) lastId = event.id;
          if (event.event === "record") onRecords(parseExactly(event.data).records);
          else if (event.event === "tombstone") onGap(parseExactly(event.data));
          else if (event.event === "topic-deleted") onState("deleted");
        }
        onState("connecting");
      } catch (error) {
        if (abort.signal.aborted) return;
        onState("broken", error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 10_000);
    }
  };
  run();
  return () => abort.abort();
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const event = { event: "message", data: "", id: "" };
        for (const line of block.split("\n")) {
          const colon = line.indexOf(": ");
          if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
