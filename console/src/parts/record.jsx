import { useState } from "preact/hooks";
import { writeExactly } from "../api.js";
import { clock, count, moment } from "../format.js";
import { Copy } from "./copy.jsx";
import { Json } from "./json.jsx";

const PREVIEW = 240;

export function Record({ record, open: isOpen = false }) {
  const [open, setOpen] = useState(isOpen);
  const id = `record-${record.$seq}`;
  return (
    <article class="record" aria-label={`Record ${record.$seq}`}>
      <button type="button" class="record-line row-link" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <span class="seq">{count(record.$seq)}</span>
        <time title={moment(record.$ts)}>{clock(record.$ts)}</time>
        <span class="from">{record.$tag !== undefined && <span class="tag">{record.$tag}</span>}{record.$node !== undefined && <span class="node">{record.$node}</span>}</span>
        <code class="preview">{preview(record.data)}</code>
      </button>
      {open && (
        <div class="record-body" id={id}>
          <dl>
            <dt>Written</dt><dd>{moment(record.$ts)}.{String(record.$ts % 1000).padStart(3, "0")}</dd>
            {record.$tag !== undefined && <><dt>Tag</dt><dd>{record.$tag}</dd></>}
            {record.$node !== undefined && <><dt>Node</dt><dd>{record.$node}</dd></>}
            {record.meta !== undefined && <><dt>Meta</dt><dd><Json value={record.meta} depth={1} /></dd></>}
            <dt>Data</dt><dd><Json value={record.data} /></dd>
          </dl>
          <Copy text={() => writeExactly(record.data, 2)} label="Copy data" what={`of record ${record.$seq}`} />{" "}
          <Copy text={() => writeExactly(record, 2)} label="Copy record" what={`${record.$seq}`} />
        </div>
      )}
    </article>
  );
}

export function preview(data) {
  const text = writeExactly(data);
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}
