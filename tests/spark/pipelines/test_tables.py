"""Tables of a route, without Spark: what is read of them, and as of when."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pyspark_topics.errors import TableChanged
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.joined import JoinedTableReader

KINDS = {"BIGINT": LongType(), "INT": IntegerType(), "STRING": StringType()}


def columns(text: str) -> StructType:
    """`StructType.fromDDL` asks Spark."""
    named = (one.split() for one in text.split(", "))
    return StructType([StructField(name, KINDS[kind]) for name, kind in named])


def rows(path: object, kind: str, schema: str) -> list[dict[str, Any]]:
    reader = JoinedTableReader(location(str(path)), kind, columns(schema))
    (partition,) = reader.partitions()
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]


def test_a_version_that_was_vacuumed_since_it_was_planned_is_no_obstacle(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_deltalake(table, pa.table({"a": [1]}))
    reader = JoinedTableReader(location(str(table)), "delta", columns("a BIGINT"))
    (planned,) = reader.partitions()
    write_deltalake(table, pa.table({"a": [2]}), mode="overwrite")
    assert [batch.to_pylist() for batch in reader.read(planned)] == [[{"a": 1}]]
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [batch.to_pylist() for batch in reader.read(planned)] == [[{"a": 2}]]


@pytest.mark.parametrize(
    ("now", "says"),
    [({"a": [2]}, 'has no column "b" any more'), ({"a": [2], "b": ["x"]}, 'column "b" of .* another type')],
)
def test_a_column_that_is_gone_is_not_made_up(tmp_path: Path, now: dict[str, list[Any]], says: str) -> None:
    table = tmp_path / "t"
    write_deltalake(table, pa.table({"a": [1], "b": [1]}))
    write_deltalake(table, pa.table(now), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableChanged, match=says):
        rows(table, "delta", "a BIGINT, b BIGINT")


def test_rows_that_a_deletion_vector_names_are_not_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    config = {"delta.enableDeletionVectors": "true"}
    write_deltalake(table, pa.table({"a": [1, 2, 3]}), configuration=config)
    (log,) = sorted((table / "_delta_log").glob("*.json"))
    (add,) = (line["add"] for line in map(json.loads, log.read_text().splitlines()) if "add" in line)
    # The second row, as the format has it: one bitmap for high bits 0, with one container of one value.
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 1)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector += bytes(-len(vector) % 4)
    inline = {"storageType": "i", "pathOrInlineDv": _z85(vector), "sizeInBytes": 34, "cardinality": 1}
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    lines = [{"remove": remove}, {"add": {**add, "deletionVector": inline}}]
    (table / "_delta_log" / f"{1:020}.json").write_text("\n".join(map(json.dumps, lines)))
    assert rows(table, "delta", "a BIGINT") == [{"a": 1}, {"a": 3}]


def _z85(data: bytes) -> str:
    """Delta's letters for the 85 digits that Python writes as others."""
    python = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    delta = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).translate(bytes.maketrans(python, delta)).decode()


def test_other_files_are_read_as_they_are_now(tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text('id,name,n\na,"A, ""B""",1\nb,,\n')
    schema = "id STRING, name STRING, n INT"
    assert rows(names, "csv", schema) == [
        {"id": "a", "name": 'A, "B"', "n": 1},
        {"id": "b", "name": None, "n": None},
    ]
    names.write_text("id,name,n\nc,C,3\n")
    assert rows(names, "csv", schema) == [{"id": "c", "name": "C", "n": 3}]
    (tmp_path / "x.json").write_text('{"a": 1, "b": "x"}\n{"a": 2}\n')
    found = rows(tmp_path / "x.json", "json", "a BIGINT, b STRING")
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    (tmp_path / "p" / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [5]}), tmp_path / "p" / "day=1" / "0.parquet")
    assert rows(tmp_path / "p", "parquet", "a BIGINT, day INT") == [{"a": 5, "day": 1}]
