"""`data` parsed by Spark."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation

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


def test_what_a_variant_cannot_hold_is_kept_and_counted(
    server: Server, topic: str, read: Callable[..., DataFrame]
) -> None:
    server.append(topic, 1)
    twice = b'{"records":[{"data":{"a":1,"a":2}}]}'
    headers = {"Content-Type": "application/json"}
    assert server.http.post(f"{server.url}/v0/topics/{topic}", content=twice, headers=headers).is_success
    counted = Observation()
    frame = parse_data(read(topic), "variant", counted).orderBy("seq")
    rows = frame.selectExpr("to_json(data) AS text", "malformed").collect()
    assert [tuple(row) for row in rows] == [("1", None), (None, '{"a":1,"a":2}')]
    assert counted.get == {"records": 2, "malformed": 1}
