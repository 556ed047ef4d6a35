"""Rows that are no record, set aside: a record of their own each, that says what was wrong with them.

    {"data": {"kind": "error", "pipeline": "big", "reason": "…", "topic": "orders", "seq": 7, "row": …},
     "tag": "error"}

`topic` and `seq` name the record that did not fit; they are NULL for a row that a query made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from topics.values.names import is_topic_name

TAG = "error"
KIND = "error"


@dataclass(frozen=True)
class Misfits:
    """Where rows go that are no record, and in whose name."""

    into: str
    pipeline: str

    def records(self, found: list[tuple[str, Any]]) -> pa.RecordBatch:
        """As the sink takes them: of each row the reason, and the row itself."""
        texts = [self.text(reason, None, None, row) for reason, row in found]
        return pa.RecordBatch.from_pydict({"data": texts, "tag": [TAG] * len(texts)})

    def text(self, reason: str, topic: str | None, seq: int | None, row: Any) -> str:
        record = {
            "kind": KIND,
            "pipeline": self.pipeline,
            "reason": reason,
            "topic": topic,
            "seq": seq,
            "row": row,
        }
        return msgspec.json.encode(record, enc_hook=str).decode()


def sift(
    batch: pa.RecordBatch, texts: tuple[str, ...], has_target: bool
) -> tuple[pa.RecordBatch, list[tuple[str, Any]]]:
    """The rows that can be records, and the others with what is wrong; `texts` are columns of JSON text."""
    found = dict(_wrong(batch, texts, has_target))
    if not found:
        return batch, []
    keep = pa.array([row not in found for row in range(batch.num_rows)])
    return batch.filter(keep), [(why, batch.slice(row, 1).to_pylist()[0]) for row, why in found.items()]


def _wrong(batch: pa.RecordBatch, texts: tuple[str, ...], has_target: bool) -> Iterator[tuple[int, str]]:
    columns = {name: batch.column(name).to_pylist() for name in ("data", *texts)}
    targets = None if has_target else batch.column("topic").to_pylist()
    for row in range(batch.num_rows):
        why = "data is NULL" if columns["data"][row] is None else None
        if why is None and targets is not None:
            why = _no_target(targets[row])
        for name in texts:
            why = why or _no_json(name, columns[name][row])
        if why is not None:
            yield row, why


def _no_target(name: str | None) -> str | None:
    if name is None:
        return "topic is NULL"
    return None if is_topic_name(name) else f'a topic cannot be called "{name}"'


def _no_json(name: str, text: str | None) -> str | None:
    try:
        if text is not None:
            msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return f"{name} is not valid JSON: {error}"
    return None
