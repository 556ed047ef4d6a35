"""Columns out of `data`: what fits is there, what does not is in `_rescued`, and `data` is as it was."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_topics.pipelines.table_schema import RECORDS
from pyspark_topics.pipelines.typed import MOST_COLUMNS, Typing, check_columns, parse_schema, settled
from pyspark_topics.rows import TIMESTAMP


def batch(*data: str) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "topic": ["t"] * len(data),
        "epoch": [1] * len(data),
        "seq": list(range(1, len(data) + 1)),
        "ts": [datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)] * len(data),
        "data": list(data),
    }
    arrays = [pa.array(columns.get(one.name, [None] * len(data)), one.type) for one in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def typing(text: str, *more: str, partition_by: tuple[str, ...] = ()) -> Typing:
    fields = [pa.field(name, kind) for name, kind in parse_schema(text).items()] if text else []
    extra = [pa.field("day", pa.date32())] if "day" in more else []
    return Typing(pa.schema([*RECORDS, *extra, *fields, pa.field("_rescued", pa.string())]), partition_by)


def row(schema: str, data: str, **more: Any) -> dict[str, Any]:
    (found,) = typing(schema, **more).fill(batch(data)).to_pylist()
    assert found["data"] == data
    return {name: value for name, value in found.items() if name not in RECORDS.names}


def test_fields_become_columns_and_nothing_is_rescued_if_all_fits() -> None:
    schema = "sku STRING, qty INT, price DECIMAL(6, 2), share DOUBLE, paid BOOLEAN, on DATE, at TIMESTAMP"
    data = {
        "sku": "A-1",
        "qty": 2,
        "price": 12.5,
        "share": 1,
        "paid": True,
        "on": "2026-01-31",
        "at": "2026-01-31T10:00:00+01:00",
        "n": None,
    }
    assert row(f"{schema}, `n` BIGINT", json.dumps(data, separators=(",", ":"))) == {
        "sku": "A-1",
        "qty": 2,
        "price": Decimal("12.50"),
        "share": 1.0,
        "paid": True,
        "on": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 9, tzinfo=UTC),
        "n": None,
        "_rescued": None,
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT", '"2"'),
        ("INT", "2.0"),
        ("INT", "true"),
        ("INT", "2147483648"),
        ("TINYINT", "128"),
        ("BIGINT", "9223372036854775808"),
        ("DOUBLE", "9007199254740993"),
        ("DOUBLE", '"1.5"'),
        ("FLOAT", "16777217"),
        ("FLOAT", "1e39"),
        ("FLOAT", "-3.5e38"),
        ("FLOAT", "1e-60"),
        ("BOOLEAN", "1"),
        ("BOOLEAN", '"true"'),
        ("STRING", "1"),
        ("STRING", "false"),
        ("DATE", '"2026-02-30"'),
        ("DATE", '"20260131"'),
        ("DATE", "20260131"),
        ("TIMESTAMP", '"yesterday"'),
        ("TIMESTAMP", "1767225600000"),
        ("TIMESTAMP", '"2026-01-31T10:00:00.1234567Z"'),
        ("TIMESTAMP", '"2026-01-31T10:00:00,0000000001+01:00"'),
        ("DECIMAL(4, 2)", "123.4"),
        ("DECIMAL(4, 2)", "1.234"),
        ("DECIMAL(4, 2)", '"1.2"'),
        ("DECIMAL(4, 2)", "{}"),
    ],
)
def test_what_does_not_fit_is_rescued_as_it_was(kind: str, value: str) -> None:
    found = row(f"x {kind}, y STRING", f'{{"x":{value},"y":"z"}}')
    assert found == {"x": None, "y": "z", "_rescued": f'{{"x":{value}}}'}


def test_what_fits_up_to_its_last_digit_is_a_column() -> None:
    at = datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=UTC)
    for text in ("10:00:00.123456", "10:00:00.123456000Z"):
        assert row("x TIMESTAMP", f'{{"x":"2026-01-31T{text}"}}') == {"x": at, "_rescued": None}
    assert row("x FLOAT", '{"x":0.1}')["x"] == pytest.approx(0.1)
    largest = 3.4028234663852886e38
    assert row("x FLOAT", f'{{"x":-{largest}}}') == {"x": -largest, "_rescued": None}
    assert row("x FLOAT", '{"x":0.0}') == {"x": 0.0, "_rescued": None}


def test_unknown_fields_and_values_that_are_no_objects_are_rescued() -> None:
    assert row("x INT", '{"x":1,"other":{"deep":[1.0,1e3]}}') == {
        "x": 1,
        "_rescued": '{"other":{"deep":[1.0,1e3]}}',
    }
    assert row("x INT", '{"x":1,"X":2}') == {"x": 1, "_rescued": '{"X":2}'}, "names are taken by the letter"
    for value in ("null", "7", '"text"', "[1,2]"):
        assert row("x INT", value) == {"x": None, "_rescued": value}
    assert row("x INT", "{}") == {"x": None, "_rescued": None}
    huge = '{"x":1e999}'
    assert row("x INT", huge) == {"x": None, "_rescued": huge}


def test_objects_and_lists_are_text_in_a_string_column() -> None:
    assert row("x STRING", '{"x":{"a":[1.0]}}') == {"x": '{"a":[1.0]}', "_rescued": None}
    assert row("x STRING", '{"x":[1]}') == {"x": "[1]", "_rescued": None}


def test_an_empty_text_is_no_partition() -> None:
    assert row("x STRING", '{"x":""}') == {"x": "", "_rescued": None}
    assert row("x STRING", '{"x":""}', partition_by=("x",)) == {"x": None, "_rescued": '{"x":""}'}


def test_the_day_is_that_of_utc() -> None:
    found = typing("x INT", "day").fill(batch("{}"))
    assert found.column("day").to_pylist() == [date(2026, 1, 31)]
    assert found.column("day").type == pa.date32()


def test_fields_that_are_no_columns_are_reported_with_what_they_hold() -> None:
    one = typing("x INT")
    one.fill(
        batch(
            '{"a":1,"b":1,"c":true,"d":{},"e":null,"f":1,"g h":1,"Topic":1,"X":1,"":1}',
            '{"big":18446744073709551615}',
            '{"b":1.5,"f":"x","x":9}',
        )
    )
    assert one.found == {
        "a": {"int"},
        "b": {"int", "float"},
        "c": {"bool"},
        "d": {"text"},
        "f": {"int", "text"},
        "big": {"float"},
    }
    assert settled([one.found, {"a": frozenset(("float",)), "A": frozenset(("int",))}]) == {
        "A": pa.int64(),
        "b": pa.float64(),
        "c": pa.bool_(),
        "d": pa.string(),
        "f": pa.string(),
        "big": pa.float64(),
    }


def test_columns_that_come_by_themselves_have_a_limit() -> None:
    one = typing("")
    found = one.fill(batch(json.dumps({f"f{n}": n for n in range(MOST_COLUMNS)}, separators=(",", ":"))))
    assert len(one.found) + len(one.schema) == MOST_COLUMNS
    assert str(found.column("_rescued")[0].as_py()).endswith(f'"f{MOST_COLUMNS - 1}":{MOST_COLUMNS - 1}}}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qty", 'a field is a name and a type, like "qty INT"'),
        ("qty NUMBER", 'gives "qty" the type NUMBER; a column can be: STRING'),
        ("a ARRAY<INT>", "objects and lists are STRING"),
        ("a DECIMAL(40, 2)", "a column can be"),
        ("data STRING", '"data", which is a column already'),
        ("_RESCUED STRING", "which is a column already"),
        ("a INT, A INT", '"A", which is a column already'),
        ("`a b` INT", "a column cannot be called that"),
        ("a INT,", "a name and a type"),
    ],
)
def test_mistakes_of_a_schema_are_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", "[(]")):
        parse_schema(text)


def test_types_are_what_sql_calls_them() -> None:
    assert parse_schema("a int, b: bigint, `c` decimal( 10,2 ), d timestamp") == {
        "a": pa.int32(),
        "b": pa.int64(),
        "c": pa.decimal128(10, 2),
        "d": TIMESTAMP,
    }


def test_partitions_and_clusters_choose_from_known_columns() -> None:
    fields = parse_schema("country STRING, share DOUBLE")
    check_columns("partition_by", ["topic", "day", "country"], fields)
    check_columns("cluster_by", ["share", "day"], fields)
    with pytest.raises(
        ValueError, match='partition_by names "seq", and it can be: topic, day, country, share'
    ):
        check_columns("partition_by", ["seq"], fields)
    with pytest.raises(ValueError, match='partition_by names "share": choose a STRING'):
        check_columns("partition_by", ["share"], fields)
    with pytest.raises(ValueError, match="cluster_by names a column twice"):
        check_columns("cluster_by", ["day", "day"], fields)
