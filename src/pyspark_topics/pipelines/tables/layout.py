"""How rows are put into files: one partition to a file, and in the order of the columns they cluster by.

Files have all columns, those of their partition included, so that they can be read without the table's log.
That has the partition and the smallest and largest values, by which readers pass over files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Behind the columns that users choose: what tells records apart, so that every order is a whole one.
_ORDER = ("topic", "epoch", "seq")

Partition = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Layout:
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.cluster_by, *_ORDER)))

    def split(self, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        """By partition, as names and values."""
        if not self.partition_by:
            yield (), table
            return
        found = table.select(self.partition_by).group_by(list(self.partition_by)).aggregate([]).to_pylist()
        for values in found:
            part = table
            for name in self.partition_by if len(found) > 1 else ():
                column, value = part[name], values[name]
                part = part.filter(pc.is_null(column) if value is None else pc.equal(column, value))
            yield tuple((name, values[name]) for name in self.partition_by), part

    def ordered(self, table: pa.Table) -> pa.Table:
        return table.sort_by([(name, "ascending") for name in self._keys]) if self.cluster_by else table

    def merged(self, files: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Rows of files that are in order, in order; a batch of each is in memory at a time."""
        if not self.cluster_by:
            for file in files:
                yield from file
            return
        heads = [_Head(file, self._keys) for file in files]
        while heads := [head for head in heads if head.fill()]:
            # What comes later in any file is not below the last row that we see of it.
            cut = min(head.last for head in heads)
            parts = [head.take(cut) for head in heads]
            yield from self.ordered(
                pa.Table.from_batches([part for part in parts if part.num_rows])
            ).to_batches()


class _Head:
    """The next rows of a file."""

    def __init__(self, file: Iterator[pa.RecordBatch], keys: tuple[str, ...]) -> None:
        self._file, self._keys = file, keys
        self._batch: pa.RecordBatch | None = None

    def fill(self) -> bool:
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._file, None)
            if self._batch is None:
                return False
        return True

    def _key(self, row: int) -> tuple[Any, ...]:
        assert self._batch is not None
        values = (self._batch.column(name)[row].as_py() for name in self._keys)
        # NULL comes last, as Arrow sorts it.
        return tuple((value is None, value) for value in values)

    @property
    def last(self) -> tuple[Any, ...]:
        assert self._batch is not None
        return self._key(self._batch.num_rows - 1)

    def take(self, cut: tuple[Any, ...]) -> pa.RecordBatch:
        """Rows up to the cut."""
        assert self._batch is not None
        count = self._batch.num_rows
        if self.last > cut:
            count = bisect_right(range(count), cut, key=self._key)
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return taken


def as_delta(value: Any) -> str | None:
    """A partition's value as a table's log has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def shaped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Columns that came later are NULL in earlier files."""
    for batch in batches:
        arrays = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain(schema: pa.Schema) -> pa.Schema:
    """In types that Spark has; the same values."""
    texts = dict.fromkeys((pa.large_string(), pa.string_view()), pa.string())
    kinds = texts | dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary())
    return pa.schema([one.with_type(kinds.get(one.type, one.type)) for one in schema])
