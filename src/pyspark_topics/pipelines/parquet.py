"""Parquet files as the lake has them: written by executors, and synced before a driver hears of them."""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pyspark_topics.staging import gathered

# One file is closed at about this size and the next begun.
TARGET_BYTES = 128 * 1024 * 1024
# Raw bytes of a row group: large enough to compress and to scan well, small enough to hold in memory.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Statistics of these columns go into the table's log, so readers can pass over files.
_MEASURED = ("topic", "epoch", "seq", "ts")
# Values that repeat; `data` rarely does, and a dictionary for it would only cost time.
_REPEATING = ("topic", "node", "tag", "reason")
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

    def stats(self) -> str:
        """As Delta's log has it."""
        return json.dumps(
            {"numRecords": self.rows, "minValues": _json(self.low), "maxValues": _json(self.high)}
        )

    @classmethod
    def from_action(cls, row: dict[str, Any]) -> Self:
        def measured(end: str) -> dict[str, Any]:
            found = {name: row.get(f"{end}.{name}") for name in _MEASURED}
            return {name: value for name, value in found.items() if value is not None}

        return cls(row["path"], row["size_bytes"], row["num_records"] or 0, measured("min"), measured("max"))


def _json(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def write_files(
    batches: Iterable[pa.RecordBatch], folder: str, target_bytes: int = TARGET_BYTES
) -> Iterator[DataFile]:
    """Files of about the target size, in the order of the batches, each synced when it is yielded."""
    open_file: _OpenFile | None = None
    try:
        for group in gathered(batches, ROW_GROUP_BYTES):
            if open_file is None:
                open_file = _OpenFile(folder, group[0].schema)
            open_file.add(pa.Table.from_batches(group))
            if open_file.size >= target_bytes:
                finished, open_file = open_file, None
                yield finished.finish()
        if open_file is not None:
            finished, open_file = open_file, None
            yield finished.finish()
    finally:
        if open_file is not None:
            open_file.abandon()


class _OpenFile:
    """One file being written. Its name is its own, so attempts never meet in one file."""

    def __init__(self, folder: str, schema: pa.Schema) -> None:
        self._folder = folder
        self.path = f"part-{uuid.uuid4().hex}.zstd.parquet"
        os.makedirs(folder, exist_ok=True)
        self._sink = pa.OSFile(self._full, "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            use_dictionary=[name for name in _REPEATING if name in schema.names],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _STEADY if name in schema.names},
            write_statistics=True,
        )
        self.size = 0
        self._rows = 0
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}

    @property
    def _full(self) -> str:
        return os.path.join(self._folder, self.path)

    def add(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.size = self._sink.tell()
        self._rows += table.num_rows
        for name in _MEASURED:
            if name in table.schema.names:
                found = pc.min_max(table[name]).as_py()
                if found["min"] is not None:
                    self._low[name] = min(self._low.get(name, found["min"]), found["min"])
                    self._high[name] = max(self._high.get(name, found["max"]), found["max"])

    def finish(self) -> DataFile:
        self._writer.close()
        self._sink.close()
        with open(self._full, "rb") as written:
            os.fsync(written.fileno())
        sync_folder(self._folder)
        return DataFile(self.path, os.path.getsize(self._full), self._rows, self._low, self._high)

    def abandon(self) -> None:
        self._writer.close()
        self._sink.close()
        os.unlink(self._full)


def read_file(path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_BATCH_ROWS, columns=columns)


@dataclass(frozen=True)
class Stretch:
    """Seqs `first` to `last` of one life of a topic, and the files in which they may lie."""

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
        """In order of seq; `columns` has to name it."""
        wanted = self.filter if more is None else self.filter & more
        found = ds.dataset(list(self.files), format="parquet").to_table(columns=list(columns), filter=wanted)
        return found.sort_by("seq")


def may_hold(one: DataFile, topic: str, epoch: int, first: int, last: int) -> bool:
    """By its statistics."""
    known = {"topic": (topic, topic), "epoch": (epoch, epoch), "seq": (first, last)}
    return all(
        one.low.get(name, high) <= high and one.high.get(name, low) >= low
        for name, (low, high) in known.items()
    )


def local_path(uri: str) -> str:
    """delta-rs gives paths as in addresses, with or without `file://`: a space in them is `%20`."""
    return unquote(uri.removeprefix("file://"))


def sync_folder(folder: str) -> None:
    """A file is safe only when its name is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
