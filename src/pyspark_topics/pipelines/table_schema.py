"""Columns of an archive's tables, how files are laid out, and which existing tables can be used.

Files are written and read without an engine: nothing fills in partition columns, checks constraints, or
leaves out the rows that a deletion vector names. A table that asks for any of that is refused. Files contain
all columns, those of their partition included, so they can be read without the log of the table. The log has
the partition and the smallest and largest values, by which readers skip files.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import starmap
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.delta_table import is_marked
from pyspark_topics.rows import TIMESTAMP

RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("ts", TIMESTAMP),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("data", pa.string()),
        ("meta", pa.string()),
    ]
)
GAPS = pa.schema(
    [
        ("topic", pa.string()),
        ("epoch", pa.int64()),
        ("gap_from", pa.int64()),
        # NULL where its end is not known: the topic was deleted before it was read.
        ("gap_to", pa.int64()),
        ("reason", pa.string()),
        # When the archive learned of it.
        ("ts", TIMESTAMP),
    ]
)
DAY, RESCUED = "day", "_rescued"
RESERVED = frozenset((*RECORDS.names, DAY, RESCUED))


@dataclass(frozen=True)
class ArchiveColumns:
    # Out of `data`, by name.
    fields: Mapping[str, pa.DataType] = field(default_factory=dict)
    # Whether there is a column for what does not fit.
    typed: bool = False
    # The day of a record is a column where rows are sorted by it into files.
    day: bool = False
    partition_by: tuple[str, ...] = ()
    # Columns may be added to the table.
    evolve: bool = False

    @property
    def schema(self) -> pa.Schema:
        day = [(DAY, pa.date32())] if self.day else []
        rescued = [(RESCUED, pa.string())] if self.typed else []
        return pa.schema([*RECORDS, *starmap(pa.field, [*day, *self.fields.items(), *rescued])])

    def lacking(self, table: DeltaTable) -> pa.Schema:
        names = {one.name for one in table.schema().fields}
        return pa.schema([one for one in self.schema if one.name not in names])

    def differences(self, table: DeltaTable) -> Iterator[tuple[str, str]]:
        """Settings, and what about them does not fit the table."""
        found = {one.name: one.type for one in columns_of(table)}
        partitions = table.metadata().partition_columns
        if tuple(partitions) != self.partition_by:
            by = ", ".join(partitions) or "nothing"
            yield "partition_by", f"it is partitioned by {by}, which cannot be changed"
        if RESCUED in found and not self.typed:
            yield "schema", f'it has a column "{RESCUED}": give its schema, or evolve = true'
        for name, kind in self.fields.items():
            if name in found and found[name] != kind:
                yield "schema", f'its column "{name}" is {found[name]} and not {kind}'
            others = [one for one in found if one.lower() == name.lower() and one != name]
            if others:
                yield (
                    "schema",
                    f'it has a column "{others[0]}", and names differ in more than their case',
                )
        lacking = self.lacking(table).names
        if lacking and not self.evolve:
            yield "schema", f'it has no column "{lacking[0]}": with evolve = true it is added'


def columns_of(table: DeltaTable) -> pa.Schema:
    return plain(pa.schema(table.schema().to_arrow()))


def refuse_unlike(table: DeltaTable, wanted: ArchiveColumns, uri: str) -> None:
    for setting, why in wanted.differences(table):
        raise PipelineFailed(f"{uri} does not fit {setting}: {why}; nothing was written")


def add_columns(table: DeltaTable, new: pa.Schema) -> None:
    """In a commit of its own; earlier rows have NULL there. One that is there stays as it is."""
    names = {one.name.lower() for one in table.schema().fields}
    lacking = [one for one in new if one.name.lower() not in names]
    if lacking:
        fields: list[Field] = Schema.from_arrow(pa.schema(lacking)).fields
        table.alter.add_columns(fields)
        table.update_incremental()


# Columns that are NULL in some rows of every table of ours.
_NULLABLE = ("node", "tag", "meta", "gap_to", "reason")
# Features that ask nothing of a writer that only adds rows and merges files.
_HARMLESS = frozenset(
    (
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",  # the constraints themselves are looked at
        "generatedColumns",  # and so are the columns
        "invariants",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
_CONSTRAINT = "delta.constraints."
# What a column may say of itself that a writer would have to obey.
_RULES = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


def refuse_other_table(table: DeltaTable, wanted: Schema) -> None:
    why = next(objections(table, wanted), None)
    if why is not None:
        path = unquote(table.table_uri.removeprefix("file://")).rstrip("/")
        raise PipelineFailed(
            f"{path} is a table of something else: {why}; nothing was written: give another folder"
        )


def objections(table: DeltaTable, wanted: Schema) -> Iterator[str]:
    """Yield the reasons why an existing table cannot be used, the clearest first."""
    found = {column.name: column for column in table.schema().fields}
    for column in wanted.fields:
        name = column.name
        if name not in found:
            yield f'it has no column "{name}"'
        elif found[name].type != column.type:
            yield f'its column "{name}" is {_kind(found[name])} and not {_kind(column)}'
        elif not found[name].nullable and name in _NULLABLE:
            yield f'its column "{name}" cannot be NULL'
    # Tables of ours have more columns where there is one for what does not fit, and they have a day.
    more = found.keys() - {column.name for column in wanted.fields} - {"day"}
    for name in sorted(more) if "_rescued" not in found else ():
        yield f'it has a column "{name}"'
    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns and not is_marked(table):
        yield f"it is partitioned by {', '.join(metadata.partition_columns)}"
    for key in metadata.configuration:
        if key.startswith(_CONSTRAINT):
            yield f"it has the constraint {key.removeprefix(_CONSTRAINT)}"
    for name, column in found.items():
        if any(rule in column.metadata for rule in _RULES):
            yield f'its column "{name}" has rules of its own'
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "its columns have other names in its files (column mapping)"
    for feature in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _HARMLESS):
        yield f"it needs the table feature {feature}"
    if not is_marked(table) and pa.table(table.get_add_actions()).num_rows:
        yield (
            "it was written by another program or by an earlier version of topics: replay it with the "
            "program that wrote it, and archive that"
        )


def _kind(field: object) -> str:
    kind = getattr(field, "type", None)
    return str(getattr(kind, "type", kind))


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
        """Yield partitions, as names and values, with their rows."""
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
