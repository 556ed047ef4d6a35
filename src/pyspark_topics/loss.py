"""Loss as data: the row for a range that is gone, and its record in a topic that is derived.

    {"data": {"kind": "tombstone", "topic": "orders", "gap_from": 1, "gap_to": 2, "reason": "cap"},
     "tag": "tombstone"}

A route that reads a derived topic recognises such records and passes them on as they are.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_topics.errors import LossRefused
from pyspark_topics.offsets import SeqSet
from pyspark_topics.rows import TOMBSTONE, ReadSchema

# Reasons of ours beside the server's: the planned range belonged to a life of the topic that has ended.
RECREATED = "recreated"
TOPIC_DELETED = "topic_deleted"


@dataclass(frozen=True)
class LossPolicy:
    mode: str
    schema: ReadSchema

    def announce(self, topic: str, gap_from: int, gap_to: int, reason: str) -> Iterator[pa.RecordBatch]:
        """Yield the row to deliver in place of the lost range, if any."""
        if self.mode == "fail":
            raise LossRefused(topic, gap_from, gap_to, reason)
        if self.mode == "rows" and "gap_from" in self.schema.names:
            yield self.schema.tombstone(topic, gap_from, gap_to, reason)


TOMBSTONE_TAG = "tombstone"
# How the text of such a record begins; records are compact JSON, and keys keep their order.
TOMBSTONE_BEGINNING = '{"kind":"tombstone",'


def together(met: Iterable[str], asked: Iterable[str]) -> list[str]:
    """Each loss once, in an order of its own: what tasks met, and what was asked and they did not meet.

    Seqs of `recreated` may be those of an earlier life: they cover nothing, and nothing covers them.
    """
    met = list(dict.fromkeys(met))
    covered: dict[str, SeqSet] = {}
    for gap in map(json.loads, met):
        if gap["gap_to"] is not None and gap["reason"] != RECREATED:
            known = covered.get(gap["topic"], SeqSet())
            covered[gap["topic"]] = known | SeqSet.of([(gap["gap_from"], gap["gap_to"])])
    rest = [text for one in asked if one not in met for text in _uncovered(one, covered)]
    return sorted(dict.fromkeys([*met, *rest]), key=_order)


def _uncovered(text: str, covered: dict[str, SeqSet]) -> Iterable[str]:
    gap = json.loads(text)
    is_whole = gap["gap_to"] is None or gap["gap_from"] > gap["gap_to"] or gap["reason"] == RECREATED
    if is_whole or gap["topic"] not in covered:
        return [text]
    left = SeqSet.of([(gap["gap_from"], gap["gap_to"])]) - covered[gap["topic"]]
    return [as_text(gap["topic"], first, last, gap["reason"]) for first, last in left.ranges]


def _order(text: str) -> tuple[str, int, str]:
    gap = json.loads(text)
    return gap["topic"], gap["gap_from"], text


def as_text(topic: str, gap_from: int, gap_to: int | None, reason: str) -> str:
    row = {"kind": TOMBSTONE, "topic": topic, "gap_from": gap_from, "gap_to": gap_to, "reason": reason}
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


def as_rows(texts: Iterable[str], topic: str | None = None) -> pa.RecordBatch:
    """Return rows for the sink; `topic` is for a stage whose rows name their targets."""
    texts = list(texts)
    columns = {"data": texts, "tag": [TOMBSTONE_TAG] * len(texts)}
    if topic is not None:
        columns["topic"] = [topic] * len(texts)
    arrays = [pa.array(values, pa.string()) for values in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
