"""What a route's query can name: `records`, each of its topics, and the tables it was given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.payload import parse_data
from pyspark_topics.pipelines.parquet import local_path
from pyspark_topics.pipelines.python_files import run_file

# All records of all topics of the route.
RECORDS = "records"
# Columns of the sink; whatever else a query returns becomes the record.
ENVELOPE = ("tag", "node", "meta")
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


@dataclass
class ReadCache(Mapping[str, DataFrame]):
    """Frames by name, made when they are asked for: a stream nobody asked for is not read."""

    makers: dict[str, Callable[[], DataFrame]]

    def __post_init__(self) -> None:
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            self._made[name] = self.makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def prepared(frame: DataFrame, schema: str | None, watermark: str | None) -> DataFrame:
    """Records as the query wants them."""
    if schema is not None:
        frame = parse_data(frame, schema)
    return frame if watermark is None else frame.withWatermark("ts", watermark)


def table(spark: SparkSession, path: str) -> DataFrame:
    """A table of the lake or a file, as it is when the route starts."""
    full = os.path.abspath(path)
    if not os.path.exists(full):
        raise PipelineFailed(f"there is no table at {full}")
    if os.path.isdir(os.path.join(full, "_delta_log")):
        from deltalake import DeltaTable

        return spark.read.parquet(*(local_path(uri) for uri in DeltaTable(full).file_uris()))
    kind = _FORMATS.get(Path(full).suffix, "parquet")
    return spark.read.options(**({"header": "true", "inferSchema": "true"} if kind == "csv" else {})).load(
        full, format=kind
    )


def by_sql(spark: SparkSession, query: str, views: ReadCache) -> DataFrame:
    # SQL does not tell `Orders` from `orders`: a name that is written just so comes last, and counts.
    for name in sorted(views, key=lambda name: name in query):
        if name.lower() in query.lower():  # perhaps only inside a text, which does no harm
            views[name].createOrReplaceTempView(f"`{name}`")
    return spark.sql(query)


def by_function(function: Callable[..., Any], views: ReadCache, spark: SparkSession) -> DataFrame:
    """Each parameter gets the view of its name."""
    offered: dict[str, Any] = {"spark": spark, "views": views}
    arguments = {}
    for name in inspect.signature(function).parameters:
        if name not in offered and name not in views:
            known = ", ".join([*views, *offered])
            raise PipelineFailed(f'{function.__name__} has a parameter "{name}", but a route offers: {known}')
        arguments[name] = offered[name] if name in offered else views[name]
    result = function(**arguments)
    if not isinstance(result, DataFrame):
        raise PipelineFailed(f"{function.__name__} has to return a DataFrame, not {type(result).__name__}")
    return result


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """`file.py:function`, the file beside the declaration."""
    path, _, name = reference.rpartition(":")
    if not path or not name:
        raise ValueError('python has to be like "routes.py:enrich"')
    file = folder / path
    if not file.is_file():
        raise ValueError(f"python names {file}, and there is no such file")
    function = run_file(file).get(name)
    if not callable(function):
        raise ValueError(f"{file} has no function {name}")
    found: Callable[..., Any] = function
    return found


def as_records(
    result: DataFrame, target: str | None, envelope: tuple[str, ...] = ("topic", *ENVELOPE)
) -> DataFrame:
    """The sink's columns: without a column `data`, those that are not the envelope's are the record."""
    if "data" not in result.columns:
        inside = [name for name in result.columns if name not in envelope]
        if not inside:
            raise PipelineFailed("the query returns no column that could be a record's data")
        around = [name for name in result.columns if name in envelope]
        # In backticks, because a dot in a name would mean a field inside another column.
        fields = [f.col("`" + name.replace("`", "``") + "`") for name in inside]
        result = result.select(f.struct(*fields).alias("data"), *around)
    return result.drop("topic") if target is not None else result
