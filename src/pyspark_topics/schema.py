"""The columns a topic has in Spark, and record batches in exactly that shape.

Spark refuses a batch whose Arrow schema differs in anything from the declared one, so one list of fields
makes both. All columns are nullable: a loss row has nothing in the columns of a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from pyspark_topics.errors import OptionError
from pyspark_topics.event_time import EVENT_TS, TIMESTAMP, event_ts_of
from pyspark_topics.options import ReadOptions

_TYPES: dict[str, tuple[Any, pa.DataType]] = {
    "topic": (StringType(), pa.string()),
    "seq": (LongType(), pa.int64()),
    "ts": (TimestampType(), TIMESTAMP),
    "node": (StringType(), pa.string()),
    "tag": (StringType(), pa.string()),
    "data": (StringType(), pa.string()),
    "meta": (StringType(), pa.string()),
    "kind": (StringType(), pa.string()),
    "gap_from": (LongType(), pa.int64()),
    "gap_to": (LongType(), pa.int64()),
    "reason": (StringType(), pa.string()),
    # The record's own time, which is kept in its meta. Last, because programs count columns.
    EVENT_TS: (TimestampType(), TIMESTAMP),
}
LOSS_COLUMNS = ("kind", "gap_from", "gap_to", "reason")
RECORD_COLUMNS = tuple(name for name in _TYPES if name not in LOSS_COLUMNS)
# What a scan can be asked for; the rest is made here.
SCANNED = ("seq", "ts", "node", "tag", "data", "meta")
RECORD, TOMBSTONE = "record", "tombstone"


def column_names(options: ReadOptions) -> tuple[str, ...]:
    """Loss columns belong to loss rows: they are there if and only if such rows can come."""
    names = options.columns or RECORD_COLUMNS
    for name in names:
        if name not in _TYPES:
            raise OptionError(f'option "columns" names "{name}", but the columns are: {", ".join(_TYPES)}')
        if name in LOSS_COLUMNS and options.loss != "rows":
            raise OptionError(f'option "columns" names "{name}", which is only there with loss = "rows"')
    if not options.include_meta:
        wanted = options.columns or ()
        names = tuple(name for name in names if name != "meta" and (name != EVENT_TS or name in wanted))
    own_time = tuple(name for name in names if name == EVENT_TS)
    records = tuple(name for name in names if name not in (*LOSS_COLUMNS, EVENT_TS))
    return (*records, *LOSS_COLUMNS, *own_time) if options.loss == "rows" else (*records, *own_time)


def spark_schema(options: ReadOptions) -> StructType:
    return StructType([StructField(name, _TYPES[name][0], True) for name in column_names(options)])


@dataclass(frozen=True)
class ReadSchema:
    """The columns of one read, in order."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, options: ReadOptions) -> Self:
        """From the schema Spark reads with: ours, or one the user gave with `.schema(...)`."""
        offered = {field.name: field.dataType for field in spark_schema(options).fields}
        for field in schema.fields:
            if offered.get(field.name) != field.dataType:
                given = f"{field.name} {field.dataType.simpleString()}"
                known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in offered.items())
                raise OptionError(f'this read has no column "{given}"; it has: {known}')
        return cls(tuple(schema.fieldNames()))

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(name, _TYPES[name][1], True) for name in self.names])

    @property
    def scanned(self) -> list[str]:
        """Columns to ask the server for. A broken scan is resumed behind the last seq, so that is one."""
        return [name for name in SCANNED if name in self._needed or name == "seq"]

    @property
    def _needed(self) -> tuple[str, ...]:
        return (*self.names, "meta") if EVENT_TS in self.names else self.names

    @property
    def stored(self) -> list[str]:
        """Columns to take from a file: the wanted ones, and one in any case, to know how many rows it has."""
        return [name for name in SCANNED if name in self._needed] or ["seq"]

    @property
    def has_loss_rows(self) -> bool:
        return "gap_from" in self.names

    def records(self, topic: str, count: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        arrays = [self._column(name, topic, count, columns) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    @staticmethod
    def _column(name: str, topic: str, count: int, columns: Mapping[str, pa.Array]) -> pa.Array:
        kind = _TYPES[name][1]
        if name in columns:
            found = columns[name]
            return found if found.type == kind else found.cast(kind)
        if name == EVENT_TS and "meta" in columns:
            return event_ts_of(columns["meta"])
        if name == "topic":
            return pa.repeat(pa.scalar(topic, kind), count)
        if name == "kind":
            return pa.repeat(pa.scalar(RECORD, kind), count)
        return pa.nulls(count, kind)

    def tombstone(self, topic: str, gap_from: int, gap_to: int, reason: str) -> pa.RecordBatch:
        values = {
            "topic": topic,
            "kind": TOMBSTONE,
            "gap_from": gap_from,
            "gap_to": gap_to,
            "reason": reason,
        }
        arrays = [pa.array([values.get(name)], _TYPES[name][1]) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
