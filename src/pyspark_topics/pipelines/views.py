"""What a route's query can name: `records`, each of its topics, and the tables it was given."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.payload import parse_data
from pyspark_topics.pipelines.parquet import local_path
from pyspark_topics.pipelines.settings import FORMATS

# All records of all topics of the route.
RECORDS = "records"


@dataclass
class ReadCache(Mapping[str, DataFrame]):
    """Frames by name, made when they are asked for: a stream that no query names is not read."""

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


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """A table of the lake or a file, as it is when the route starts."""
    full = os.path.abspath(path)
    if not os.path.exists(full):
        raise PipelineFailed(f"there is no table at {full}")
    if os.path.isdir(os.path.join(full, "_delta_log")):
        from deltalake import DeltaTable

        return spark.read.parquet(*(local_path(uri) for uri in DeltaTable(full).file_uris()))
    kind = FORMATS.get(Path(full).suffix, "parquet")
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
