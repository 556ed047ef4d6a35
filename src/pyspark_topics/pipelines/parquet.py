"""Parquet files as the lake has them: written by executors, and safe before a driver hears of them."""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pyspark_topics.pipelines.delta_table import Location
from pyspark_topics.pipelines.table_schema import RECORDS, Layout, Partition, plain
from pyspark_topics.rows import TIMESTAMP
from pyspark_topics.writer import gathered

# One file is closed at about this size and the next begun.
TARGET_BYTES = 128 * 1024 * 1024
# Raw bytes of a row group: large enough to compress and to scan well, small enough to hold in memory.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Statistics of these columns go into the table's log, so readers can pass over files.
_MEASURED = ("topic", "epoch", "seq", "ts")
# Values that repeat; `data` rarely does, and a dictionary for it would only cost time.
_REPEATING = ("topic", "node", "tag", "reason")
# Names of topics are shorter.
LONGEST_TOLD = 256
# Files of one task that are written side by side, where a table is partitioned.
MOST_OPEN = 32
PLAIN = Layout()
# Rows read at once.
_BATCH_ROWS = 65_536
# Both grow steadily, so differences are all there is to store.
_STEADY = ("seq", "ts", "epoch")


@dataclass(frozen=True)
class DataFile:
    """A file of a table, by its path inside the table's folder."""

    path: str
    size: int
    rows: int
    # By column, smallest and largest value.
    low: dict[str, Any]
    high: dict[str, Any]
    # Columns of which it has one value alone, because the table is partitioned by them.
    partition: dict[str, Any] = field(default_factory=dict)

    def stats(self) -> str:
        """The statistics as text for the log of the table."""
        return json.dumps(
            {"numRecords": self.rows, "minValues": _json(self.low), "maxValues": _json(self.high)}
        )

    @classmethod
    def from_action(cls, row: dict[str, Any]) -> Self:
        def told(what: str) -> dict[str, Any]:
            names = (name for name in row if name.startswith(f"{what}."))
            return {name.removeprefix(f"{what}."): row[name] for name in names}

        def measured(end: str) -> dict[str, Any]:
            found = {**told(end), **partition}
            return {name: value for name, value in found.items() if value is not None}

        partition = told("partition")
        rows = row["num_records"] or 0
        return cls(row["path"], row["size_bytes"], rows, measured("min"), measured("max"), partition)


def _json(values: dict[str, Any]) -> dict[str, Any]:
    def text(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat(timespec="milliseconds")
        return value.isoformat() if isinstance(value, date) else value

    return {name: text(value) for name, value in values.items()}


def write_files(
    batches: Iterable[pa.RecordBatch],
    where: Location,
    target_bytes: int = TARGET_BYTES,
    layout: Layout = PLAIN,
    *,
    in_order: bool = False,
) -> Iterator[DataFile]:
    """Files of about the target size, each safe when it is yielded.

    Rows that cluster are sorted a row group at a time, which is then a file, unless they are in order.
    """
    files: dict[Partition, _OpenFile] = {}
    try:
        for group in gathered(batches, ROW_GROUP_BYTES):
            for partition, rows in layout.split(pa.Table.from_batches(group)):
                if partition not in files:
                    if len(files) == MOST_OPEN:
                        fullest = max(files, key=lambda one: files[one].size)
                        yield files.pop(fullest).finish()
                    files[partition] = _OpenFile(where, rows.schema, partition, layout)
                one = files[partition]
                one.add(rows if in_order else layout.ordered(rows))
                if one.size >= target_bytes or (layout.cluster_by and not in_order):
                    yield files.pop(partition).finish()
        while files:
            yield files.pop(next(iter(files))).finish()
    finally:
        for one in files.values():
            one.abandon()


class _OpenFile:
    """One file being written. Its name is its own, so attempts never meet in one file."""

    def __init__(self, where: Location, schema: pa.Schema, partition: Partition, layout: Layout) -> None:
        self.path = f"part-{uuid.uuid4().hex}.zstd.parquet"
        self._where, self._stream = where, where.create(self.path)
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            use_dictionary=[name for name in _REPEATING if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _STEADY if name in schema.names},
            write_statistics=True,
        )
        self.size = 0
        self._partition = dict(partition)
        self._measured = [name for name in (*_MEASURED, *layout.cluster_by) if name in schema.names]
        self._rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}

    def add(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.size = self._stream.tell()
        self._rows += table.num_rows
        for name in self._measured:
            found = pc.min_max(table[name]).as_py()
            if found["min"] is not None:
                self._low[name] = min(self._low.get(name, found["min"]), found["min"])
                self._high[name] = max(self._high.get(name, found["max"]), found["max"])

    def finish(self) -> DataFile:
        self._writer.close()
        size = self._where.finish(self.path, self._stream)
        told = [name for name in self._low if _is_told(self._low[name]) and _is_told(self._high[name])]
        low, high = ({name: ends[name] for name in told} for ends in (self._low, self._high))
        return DataFile(self.path, size, self._rows, low, high, self._partition)

    def abandon(self) -> None:
        self._writer.close()
        self._where.abandon(self.path, self._stream)


def _is_told(value: Any) -> bool:
    """Return whether the log of a table keeps this value exactly. Long texts are cut, decimals change."""
    return not isinstance(value, Decimal | bool) and (
        not isinstance(value, str) or len(value) <= LONGEST_TOLD
    )


def read_file(where: Location, name: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with _opened(where, name) as (file, threads):
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=threads):
            yield from _plain(pa.Table.from_batches([batch])).to_batches()


@contextmanager
def _opened(where: Location, name: str) -> Iterator[tuple[pq.ParquetFile, bool]]:
    """A file, and whether Arrow may read it in threads of its own: these must not call back into Python."""
    source = where.source(name)
    with pq.ParquetFile(source, pre_buffer=False) as file:
        yield file, isinstance(source, str)


def _plain(found: pa.Table) -> pa.Table:
    """In the types that we write: files that delta-rs wrote have views, which Arrow compares with no text."""
    schema = plain(found.schema)
    if schema.equals(found.schema):
        return found
    # Not as a whole: a column of a large row group may be more than one array of texts can hold.
    return pa.Table.from_batches((one.cast(schema) for one in found.to_batches(_BATCH_ROWS)), schema)


@dataclass(frozen=True)
class TableRange:
    """Seqs `first` to `last` of one life of a topic, and the files of a table in which they may lie."""

    where: Location
    files: tuple[str, ...]
    topic: str
    epoch: int
    first: int
    last: int

    @property
    def filter(self) -> ds.Expression:
        return (
            (ds.field("topic") == self.topic)
            & (ds.field("epoch") == self.epoch)
            & (ds.field("seq") >= self.first)
            & (ds.field("seq") <= self.last)
        )

    def read(self, columns: Sequence[str], more: ds.Expression | None = None) -> pa.Table:
        """In order of seq; `columns` has to name it, and what `more` asks for."""
        found = list(self.parts(columns, more))
        return pa.concat_tables(found).sort_by("seq") if found else RECORDS.empty_table().select(columns)

    def parts(self, columns: Sequence[str], more: ds.Expression | None = None) -> Iterator[pa.Table]:
        """Yield the rows one row group at a time, in the order of the files."""
        wanted = self.filter if more is None else self.filter & more
        needed = list(dict.fromkeys([*columns, "topic", "epoch"]))
        for name in self.files:
            for part in self._parts(name, needed):
                yield part.filter(wanted).select(list(columns))

    def _parts(self, name: str, columns: list[str]) -> Iterator[pa.Table]:
        """Row groups that may hold such seqs."""
        with _opened(self.where, name) as (file, threads):
            at = file.schema_arrow.get_field_index("seq")
            for group in range(file.num_row_groups):
                seqs = file.metadata.row_group(group).column(at).statistics
                known = seqs is not None and seqs.has_min_max
                if not known or (seqs.min <= self.last and seqs.max >= self.first):
                    yield _plain(file.read_row_group(group, columns=columns, use_threads=threads))


def in_time(since_ms: int | None, until_ms: int | None) -> ds.Expression:
    """Return the filter for records of these times."""
    wanted = ds.scalar(True)
    if since_ms is not None:
        wanted &= ds.field("ts") >= pa.scalar(since_ms * 1000, TIMESTAMP)
    if until_ms is not None:
        wanted &= ds.field("ts") < pa.scalar(until_ms * 1000, TIMESTAMP)
    return wanted


def may_hold(one: DataFile, topic: str, epoch: int, first: int, last: int) -> bool:
    """Return whether the statistics of a file allow such records in it."""
    known = {"topic": (topic, topic), "epoch": (epoch, epoch), "seq": (first, last)}
    return all(
        one.low.get(name, high) <= high and one.high.get(name, low) >= low
        for name, (low, high) in known.items()
    )
