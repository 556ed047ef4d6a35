"""`data` parsed by Spark."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from pyspark_topics.payload import parse_data
from tests.spark.server import Server


def test_data_parsed_by_a_schema_keeps_what_does_not_fit(
    server: Server, topic: str, read: Callable[..., DataFrame]
) -> None:
    server.append(
        topic, {"data": {"id": 1, "name": "a"}}, {"data": {"id": "x"}}, {"data": 7}, {"data": {"name": "b"}}
    )
    frame = parse_data(read(topic, loss="fail"), "id BIGINT, name STRING").orderBy("seq")
    assert [(row.data.id if row.data else None, row.malformed) for row in frame.collect()] == [
        (1, None),
        (None, '{"id":"x"}'),
        (None, "7"),
        (None, None),
    ]
    assert frame.schema["data"].dataType.fieldNames() == ["id", "name"]


def test_data_as_variant(server: Server, topic: str, read: Callable[..., DataFrame]) -> None:
    server.append(topic, {"data": {"a": [1, {"b": "deep"}]}}, {"data": None})
    frame = parse_data(read(topic), "variant")
    assert frame.schema["data"].dataType.typeName() == "variant"
    first = frame.where("seq = 1").selectExpr("variant_get(data, '$.a[1].b', 'string') AS b").collect()
    assert first[0].b == "deep"
