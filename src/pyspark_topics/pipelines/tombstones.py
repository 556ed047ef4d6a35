"""Loss on its way through a pipeline: taken out of the rows, and announced in the derived topic.

A tombstone cannot go through a query, which would filter or sum it away. So the driver asks, before a batch
is read, what was lost in its stretch, and tombstone rows are set aside as they come out of the source,
because more may be lost until it is read. Each becomes a record of the derived topic in the same commit as
the rows that were made from the rest:

    {"data": {"kind": "tombstone", "topic": "orders", "gap_from": 1, "gap_to": 2, "reason": "cap"},
     "tag": "tombstone"}

Such records are known again further down: a route that reads a derived topic hands them on as they are.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType

from pyspark_topics.loss import RECREATED, LossPolicy
from pyspark_topics.partitions import SeqRange
from pyspark_topics.pipelines.account import SeqSet
from pyspark_topics.scan import ScanFilter, ScanReader
from pyspark_topics.schema import LOSS_COLUMNS, TOMBSTONE, ReadSchema
from topics.client import Client

TAG = "tombstone"
# How the text of such a record begins; records are compact JSON, and keys keep their order.
BEGINNING = '{"kind":"tombstone",'


_ASKED = ReadSchema(("topic", "data", *LOSS_COLUMNS))


def lost_in(client: Client, ranges: Iterable[SeqRange]) -> list[str]:
    """What the server announces for these stretches, and what routes further up had announced in them.

    Of the records, the server looks at the tags alone.
    """
    reader = ScanReader(client, _ASKED, LossPolicy("rows", _ASKED), ScanFilter(tag=["tag", "Eq", TAG]))
    texts = []
    for wanted in ranges:
        for row in (row for batch in reader.read(wanted) for row in batch.to_pylist()):
            if row["kind"] == TOMBSTONE:
                texts.append(as_text(row["topic"], row["gap_from"], row["gap_to"], row["reason"]))
            elif row["data"].startswith(BEGINNING):
                texts.append(row["data"])
    return texts


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
    return sorted(dict.fromkeys([*met, *rest]), key=_place)


def _uncovered(text: str, covered: dict[str, SeqSet]) -> Iterable[str]:
    gap = json.loads(text)
    is_whole = gap["gap_to"] is None or gap["gap_from"] > gap["gap_to"] or gap["reason"] == RECREATED
    if is_whole or gap["topic"] not in covered:
        return [text]
    left = SeqSet.of([(gap["gap_from"], gap["gap_to"])]) - covered[gap["topic"]]
    return [as_text(gap["topic"], first, last, gap["reason"]) for first, last in left.ranges]


def _place(text: str) -> tuple[str, int, str]:
    gap = json.loads(text)
    return gap["topic"], gap["gap_from"], text


class _Gathered(AccumulatorParam[Any]):
    def zero(self, value: Any) -> Any:
        return [0, []]

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 - Spark's name
        return [value1[0] + value2[0], value1[1] + value2[1]]


@dataclass
class Sieve:
    """Lets records through, keeps tombstones for the driver. Only tasks that succeeded are counted."""

    context: SparkContext

    def __post_init__(self) -> None:
        self._found: Accumulator[Any] = self.context.accumulator([0, []], _Gathered())

    def through(self, frame: DataFrame) -> DataFrame:
        """Only records, without the columns that describe loss."""
        # Most texts stay where they are: Python gets only those that may be tombstones handed on.
        handed_on = f.when(f.col("tag") == TAG, f.col("data"))
        return frame.where(_keeper(self._found)("topic", handed_on, *LOSS_COLUMNS)).drop(*LOSS_COLUMNS)

    def take(self) -> tuple[int, list[str]]:
        """Since the last call: how many records went through, and the tombstones as JSON text."""
        count, texts = self._found.value
        self._found.value = [0, []]
        return count, texts


def _keeper(found: Accumulator[Any]) -> Any:
    def keep(
        topic: pa.Array,
        handed_on: pa.Array,
        kind: pa.Array,
        gap_from: pa.Array,
        gap_to: pa.Array,
        reason: pa.Array,
    ) -> pa.Array:
        lost = pc.equal(kind, TOMBSTONE)
        known = pc.fill_null(pc.starts_with(handed_on, BEGINNING), False)
        set_aside = pc.or_(lost, known)
        gap = (topic, gap_from, gap_to, reason)
        texts = [
            handed_on[at].as_py() if known[at].as_py() else as_text(*(c[at].as_py() for c in gap))
            for at in pc.indices_nonzero(set_aside).to_pylist()
        ]
        found.add([len(kind) - len(texts), texts])
        return pc.invert(set_aside)

    # "Not deterministic", or else Spark would move the query's filters below this one, and tombstones with
    # NULL in the columns they look at would be gone before they are seen.
    return f.arrow_udf(keep, BooleanType()).asNondeterministic()


def as_text(topic: str, gap_from: int, gap_to: int | None, reason: str) -> str:
    row = {"kind": TOMBSTONE, "topic": topic, "gap_from": gap_from, "gap_to": gap_to, "reason": reason}
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


def as_rows(texts: Iterable[str], topic: str | None = None) -> pa.RecordBatch:
    """As the sink takes them; `topic` for a stage whose rows name their targets."""
    texts = list(texts)
    columns = {"data": texts, "tag": [TAG] * len(texts)}
    if topic is not None:
        columns["topic"] = [topic] * len(texts)
    arrays = [pa.array(values, pa.string()) for values in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
