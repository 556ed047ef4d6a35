"""Columns: Spark takes our batches only if their schema is exactly the declared one."""

import pytest
from pyspark.sql.types import StructType

from pyspark_topics.errors import OptionError
from pyspark_topics.options import SourceOptions, parse_read
from pyspark_topics.rows import ReadSchema, spark_schema

RECORD_COLUMNS = ["topic", "seq", "ts", "node", "tag", "data", "meta", "event_ts"]
LOSS_COLUMNS = ["kind", "gap_from", "gap_to", "reason"]


def options(**extra: str) -> SourceOptions:
    return parse_read({"url": "http://x", "subscribe": "a", **extra}, streaming=False)


def names(**extra: str) -> list[str]:
    return list(spark_schema(options(**extra)).fieldNames())


def test_all_columns_by_default() -> None:
    assert names() == [*RECORD_COLUMNS[:-1], *LOSS_COLUMNS, "event_ts"]


def test_loss_columns_are_there_only_when_loss_rows_are() -> None:
    assert names(loss="fail") == RECORD_COLUMNS
    assert names(loss="ignore", includeMeta="false") == RECORD_COLUMNS[:-2]
    assert names(loss="ignore", includeMeta="false", columns="seq,event_ts") == ["seq", "event_ts"]


def test_columns_narrow_and_order_and_never_hide_loss() -> None:
    assert names(columns="data,seq") == ["data", "seq", *LOSS_COLUMNS]
    assert names(columns="data,seq", loss="fail") == ["data", "seq"]


def test_a_wrong_column_names_the_right_ones() -> None:
    with pytest.raises(OptionError, match=r'names "payload".*topic, seq, ts'):
        names(columns="payload")
    with pytest.raises(OptionError, match='only there with loss = "rows"'):
        names(columns="reason", loss="fail")


@pytest.mark.usefixtures("spark")
def test_a_schema_given_by_the_user_narrows_too() -> None:
    given = StructType.fromDDL("seq BIGINT, data STRING")
    assert ReadSchema.of(given, options()).names == ("seq", "data")
    with pytest.raises(OptionError, match='no column "data int"'):
        ReadSchema.of(StructType.fromDDL("data INT"), options())
