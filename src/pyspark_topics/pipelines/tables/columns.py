"""What an archive wants of its table, and how a table that is there already differs from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.parquet import RECORDS
from pyspark_topics.pipelines.tables.layout import plain
from pyspark_topics.pipelines.tables.typed import DAY, RESCUED


@dataclass(frozen=True)
class Columns:
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
        return pa.schema([*RECORDS, *map(_field, [*day, *self.fields.items(), *rescued])])

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


def _field(one: tuple[str, pa.DataType]) -> pa.Field:
    return pa.field(*one)


def columns_of(table: DeltaTable) -> pa.Schema:
    return plain(pa.schema(table.schema().to_arrow()))


def refuse_unlike(table: DeltaTable, wanted: Columns, uri: str) -> None:
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
