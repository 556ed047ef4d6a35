"""Loss on its way through a pipeline: taken out of the rows, and announced in the derived topic.

A tombstone cannot go through a query, which would filter or sum it away. So tombstone rows are set aside as
they come out of the source, in the same pass that reads the records, and each becomes a record of the derived
topic in the same commit as the rows that were made from the rest:

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

from pyspark_topics.schema import LOSS_COLUMNS, TOMBSTONE

TAG = "tombstone"
# How the text of such a record begins; records are compact JSON, and keys keep their order.
_BEGINNING = '{"kind":"tombstone",'


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
        # A stage that ran twice reports twice.
        return count, list(dict.fromkeys(texts))


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
        known = pc.fill_null(pc.starts_with(handed_on, _BEGINNING), False)
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
