"""Tables that a route joins with, read anew for every micro-batch.

Spark settles the files of a table when a query is made. To it these tables are therefore sources of ours: it
asks for their partitions whenever it plans a micro-batch, and that is when we look. A Delta table is read by
delta-rs at its newest version, with partition columns, columns that were added, and deletion vectors;
anything else by Arrow, with the columns that Spark found when the route began.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import csv
from pyarrow import json as arrow_json
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_topics.errors import PipelineFailed, TableChanged
from pyspark_topics.pipelines.delta_table import Location, is_address, is_table, location, open_table
from pyspark_topics.pipelines.files import FORMATS, literally, why_unreadable
from pyspark_topics.pipelines.table_schema import plain, shaped

DELTA = "delta"
# Holds keys: Spark does not show an option of this name in its plans.
_STORAGE = "storage"
# Up to here Spark hands a table to every task by itself, too.
SMALL_BYTES = 10 * 1024 * 1024


def read_table(spark: SparkSession, path: str, storage: Mapping[str, str] | None = None) -> DataFrame:
    """A table of the lake, or files; as it is when the frame is planned."""
    where = location(path, storage)
    spark.dataSource.register(TableSource)
    if is_address(path):
        return _stored(spark, where)
    full = where.uri
    if not os.path.exists(full):
        raise PipelineFailed(f"there is no table at {full}")
    reader = spark.read.format(TableSource.name()).option("path", full)
    if os.path.isdir(os.path.join(full, "_delta_log")):
        return _hinted(reader.option("kind", DELTA).load(), _size(full))
    why = why_unreadable(full) if os.path.isfile(full) else None
    if why is not None:
        raise PipelineFailed(f"{full} cannot be read, {why}; rename it")
    kind = FORMATS.get(Path(full).suffix, "parquet")
    names = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    found = spark.read.options(**names).load(literally(full), format=kind)
    return _hinted(reader.option("kind", kind).schema(found.schema).load(), _size(full))


def _stored(spark: SparkSession, where: Location) -> DataFrame:
    """In an object store: Delta tables only, because Spark itself need not reach it."""
    if not is_table(where):
        raise PipelineFailed(f"there is no Delta table at {where.uri}")
    files = pa.table(open_table(where).get_add_actions()).column("size_bytes")
    options = {"path": where.uri, "kind": DELTA, _STORAGE: json.dumps(where.storage)}
    return _hinted(spark.read.format(TableSource.name()).options(**options).load(), sum(files.to_pylist()))


def _size(path: str) -> int:
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return os.path.getsize(path) if os.path.isfile(path) else sum(map(os.path.getsize, inside))


def _hinted(frame: DataFrame, size: int) -> DataFrame:
    """Of a source of ours Spark does not know that it is small, and would sort both sides of a join."""
    return f.broadcast(frame) if size <= SMALL_BYTES else frame


@dataclass
class _Newest(InputPartition):
    """All of a table, at the version that was the newest when the batch was planned."""

    version: int | None


class TableSource(DataSource):
    """Internal: routes register it in their own sessions."""

    @classmethod
    def name(cls) -> str:
        return "topics_table"

    def schema(self) -> StructType:
        return _columns(open_table(self._location))

    @property
    def _location(self) -> Location:
        return location(self.options["path"], json.loads(self.options.get(_STORAGE, "{}")))

    def reader(self, schema: StructType) -> "JoinedTableReader":
        return JoinedTableReader(self._location, self.options["kind"], schema)


class JoinedTableReader(DataSourceReader):
    def __init__(self, where: Location, kind: str, schema: StructType) -> None:
        self.where, self.kind = where, kind
        self.arrow = _arrow(schema)

    def partitions(self) -> list[InputPartition]:
        # One task: delta-rs reads with threads of its own, and what is joined with is small.
        return [_Newest(open_table(self.where).version() if self.kind == DELTA else None)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return shaped(self._delta(partition.version) if self.kind == DELTA else self._files(), self.arrow)

    def _delta(self, version: int) -> Iterator[pa.RecordBatch]:
        try:
            batches = self._scanned(open_table(self.where, version))
            first = next(batches, None)
        except TableChanged:
            raise
        except Exception:
            # Overwritten and vacuumed since the batch was planned: what is there now is as good.
            batches = self._scanned(open_table(self.where))
            first = next(batches, None)
        if first is not None:
            yield first
            yield from batches

    def _scanned(self, table: DeltaTable) -> Iterator[pa.RecordBatch]:
        self._refuse_other_columns(table)
        return iter(pa.RecordBatchReader.from_stream(table.scan(columns=self.arrow.names)))

    def _refuse_other_columns(self, table: DeltaTable) -> None:
        """Raise if a column is gone. NULLs would be a guess, because the query may use it."""
        kinds = {field.name: field.type for field in _arrow(_columns(table))}
        for field in self.arrow:
            if field.name not in kinds:
                raise TableChanged(f'{self.where.uri} has no column "{field.name}" any more')
            if kinds[field.name] != field.type:
                raise TableChanged(f'column "{field.name}" of {self.where.uri} has another type now')

    def _files(self) -> Iterator[pa.RecordBatch]:
        found = ds.dataset(self.where.uri, self.arrow, _format(self.kind, self.arrow), partitioning="hive")
        yield from found.to_batches()


def _columns(table: DeltaTable) -> StructType:
    found: StructType = from_arrow_schema(plain(pa.schema(table.schema().to_arrow())))
    return found


def _arrow(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")


def _format(kind: str, schema: pa.Schema) -> ds.FileFormat:
    if kind == "csv":
        # As Spark has it: what is empty is NULL, also as text.
        convert = csv.ConvertOptions(column_types=schema, strings_can_be_null=True, null_values=[""])
        return ds.CsvFileFormat(convert_options=convert)
    if kind == "json":
        return ds.JsonFileFormat(parse_options=arrow_json.ParseOptions(explicit_schema=schema))
    return ds.ParquetFileFormat()
