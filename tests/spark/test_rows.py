"""Rows on their way into a topic."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pyspark_topics.errors import BadRow, OptionError
from pyspark_topics.options import ServerOptions, WriteOptions
from pyspark_topics.rows import SinkRows

# Spark parses the column lists of these tests.
pytestmark = pytest.mark.usefixtures("spark")


def rows(ddl: str, topic: str | None = "t") -> SinkRows:
    return SinkRows.of(StructType.fromDDL(ddl), WriteOptions(ServerOptions("http://x"), topic))


def rendered(ddl: str, values: list[object], kind: pa.DataType) -> list[str]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["data"])
    sink = rows(f"data {ddl}")
    texts: list[str] = sink.timed(sink.plain(batch), batch).column("data").to_pylist()
    return texts


def test_json_text_passes_untouched() -> None:
    assert rendered("STRING", ['{"a": 1}', "null"], pa.string()) == ['{"a": 1}', "null"]


def test_nested_values_become_json_as_sparks_own_to_json_would_write_them() -> None:
    kind = pa.struct({"a": pa.int64(), "b": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int32())})
    value = {"a": None, "b": ["x", None], "m": [("k", 1)]}
    assert rendered("STRUCT<a: BIGINT, b: ARRAY<STRING>, m: MAP<STRING, INT>>", [value], kind) == [
        '{"b":["x",null],"m":{"k":1}}'
    ]


def test_values_json_has_no_word_for() -> None:
    kind = pa.struct(
        {
            "f": pa.float64(),
            "d": pa.decimal128(5, 2),
            "t": pa.timestamp("us", tz="UTC"),
            "y": pa.date32(),
            "b": pa.binary(),
        }
    )
    value = {
        "f": float("nan"),
        "d": Decimal("1.50"),
        "t": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        "y": date(2026, 1, 2),
        "b": b"\x00\x01",
    }
    ddl = "STRUCT<f: DOUBLE, d: DECIMAL(5,2), t: TIMESTAMP, y: DATE, b: BINARY>"
    assert rendered(ddl, [value], kind) == [
        '{"f":"NaN","d":1.50,"t":"2026-01-02T03:04:05.678Z","y":"2026-01-02","b":"AAE="}'
    ]


def test_a_float_has_the_digits_it_was_written_with() -> None:
    kind = pa.struct({"a": pa.float32(), "b": pa.float32(), "c": pa.list_(pa.float32())})
    value = {"a": 0.1, "b": float("nan"), "c": [1.5e20, None]}
    assert rendered("STRUCT<a: FLOAT, b: FLOAT, c: ARRAY<FLOAT>>", [value], kind) == [
        '{"a":0.1,"b":"NaN","c":[1.5e20,null]}'
    ]


def test_keys_of_maps_are_written_as_values_are() -> None:
    assert rendered("MAP<BOOLEAN, INT>", [[(True, 1)]], pa.map_(pa.bool_(), pa.int32())) == ['{"true":1}']
    assert rendered("MAP<INT, INT>", [[(5, 1)]], pa.map_(pa.int32(), pa.int32())) == ['{"5":1}']
    assert rendered("MAP<DATE, INT>", [[(date(2026, 1, 2), 1)]], pa.map_(pa.date32(), pa.int32())) == [
        '{"2026-01-02":1}'
    ]


def test_a_row_without_data_is_refused() -> None:
    """What a loss row looks like once its other columns are gone."""
    with pytest.raises(BadRow, match="NULL as its data"):
        rendered("STRING", ["1", None], pa.string())


def test_one_target_for_all_rows_wins_over_the_column() -> None:
    assert rows("data STRING, topic STRING").names == ("data",)
    assert rows("data STRING, topic STRING", topic=None).names == ("data", "topic")


@pytest.mark.parametrize(
    ("ddl", "topic", "expected"),
    [
        ("tag STRING", "t", 'needs a column "data"'),
        ("data STRING", None, 'option "topic"'),
        ("data STRING, seq BIGINT", "t", "does not take the column seq.*data, topic, tag, node, meta"),
        ("data BIGINT", "t", "this is bigint"),
        ("data STRING, tag STRUCT<a: INT>", "t", 'a string as column "tag"'),
    ],
)
def test_columns_that_do_not_fit_are_named(ddl: str, topic: str | None, expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        rows(ddl, topic)
