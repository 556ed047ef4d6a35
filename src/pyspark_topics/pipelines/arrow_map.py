"""`DataFrame.mapInArrow` for machines without pandas, which it insists on and does not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import pyarrow as pa
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame
from pyspark.util import PythonEvalType

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, function: Function, schema: str) -> DataFrame:
    try:
        return frame.mapInArrow(function, schema)
    except PySparkImportError:
        # Word for word what mapInArrow does, once it has made sure of pandas.
        make_udf = import_module("pyspark.sql.pandas.functions").vectorized_udf
        udf = make_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column = udf(*[frame[name] for name in frame.columns])
        return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
