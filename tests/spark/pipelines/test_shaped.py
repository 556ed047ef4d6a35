"""Archives with columns of their own: typed, partitioned and clustered, and read like any other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from pyspark_topics.pipelines import Archive, Audit, Erase, Replay
from pyspark_topics.pipelines.lake import Lake
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server

pytestmark = pytest.mark.timeout(300)


def query(table: str, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(
        QueryBuilder().register("t", DeltaTable(table)).execute(sql)
    ).to_pylist()
    return rows


def test_fields_become_columns_and_everything_else_works_on(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    archive = Archive(
        topics=[topic],
        table=table,
        trim=True,
        schema="sku STRING, qty INT",
        evolve=True,
        partition_by=["topic", "day"],
        cluster_by=["sku"],
    )
    data = [
        {"sku": "B", "qty": 1},
        {"sku": "A", "qty": "many", "price": 1},
        "text",
        {"sku": "A", "price": 2.5},
    ]
    server.append(topic, *({"data": one, "tag": f"user:{n}"} for n, one in enumerate(data)))
    assert pipelines.run(archive)["records"] == 4
    assert query(table, "select seq, sku, qty, price, _rescued from t order by seq") == [
        {"seq": 1, "sku": "B", "qty": 1, "price": None, "_rescued": None},
        {"seq": 2, "sku": "A", "qty": None, "price": 1.0, "_rescued": '{"qty":"many"}'},
        {"seq": 3, "sku": None, "qty": None, "price": None, "_rescued": '"text"'},
        {"seq": 4, "sku": "A", "qty": None, "price": 2.5, "_rescued": None},
    ]
    lake = Lake(table)
    assert lake.location.files(".parquet") == {one.path for one in lake.files()}, "written anew, once settled"
    assert server.state(topic)["earliest_seq"] == 5, "read back equal, and trimmed"
    server.append(topic, {"data": {"price": "free", "paid": True}})
    assert pipelines.run(archive)["records"] == 1
    assert query(table, "select price, paid, _rescued from t where seq = 5") == [
        {"price": None, "paid": True, "_rescued": '{"price":"free"}'}
    ], "types stay what they were"
    assert pipelines.run(Audit(table=table))["ok"]
    pipelines.run(Replay(table=table, topic=topic, into=f"{topic}.again"))
    assert server.data(f"{topic}.again") == [*data, {"price": "free", "paid": True}]
    pipelines.run(Erase(tag="user:1", topics=[topic], tables=[table]))
    assert [row["seq"] for row in query(table, "select seq from t order by seq")] == [1, 3, 4, 5]
