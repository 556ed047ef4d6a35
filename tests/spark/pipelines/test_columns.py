"""Tables with more columns, partitions and clusters: what is made, what fits, and what stays as it was."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines import Archive, parquet
from pyspark_topics.pipelines.compaction import due, merge
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import DataFile, write_files
from pyspark_topics.pipelines.table_schema import RECORDS, Layout
from pyspark_topics.pipelines.typed import Typing
from tests.spark.pipelines.lakes import records


def archive(table: str, **more: Any) -> Archive:
    return Archive(topics=["orders"], table=table, **more)


def opened(settings: Archive) -> Lake:
    return Lake.to_write(settings.table, None, settings.columns)


def batch(rows: list[tuple[str, str]], first: int = 1, tag: str | None = None) -> pa.RecordBatch:
    """Topics and data."""
    count = len(rows)
    columns: dict[str, list[Any]] = {
        "topic": [topic for topic, _ in rows],
        "epoch": [1] * count,
        "seq": list(range(first, first + count)),
        "ts": [(first + at) * 86_400_000_000 for at in range(count)],
        "tag": [tag] * count,
        "data": [data for _, data in rows],
    }
    arrays = [pa.array(columns.get(one.name, [None] * count), one.type) for one in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def fill(lake: Lake, settings: Archive, rows: pa.RecordBatch) -> list[DataFile]:
    layout = Layout(lake.partition_by, tuple(settings.cluster_by))
    shaped = Typing(lake.columns, lake.partition_by).fill(rows)
    files = list(write_files([shaped], lake.location, layout=layout))
    at = lake.position("orders")
    end = {"orders": StreamOffset(rows.column("seq")[-1].as_py(), 1)}
    lake.commit(files, {} if at is None else {"orders": at}, end, [])
    return files


def query(lake: Lake, sql: str) -> list[dict[str, Any]]:
    """As any reader of Delta sees it."""
    found = QueryBuilder().register("t", DeltaTable(lake.path)).execute(sql)
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


def test_partitions_by_a_field_have_null_too(table: str) -> None:
    settings = archive(table, schema="country STRING", partition_by=["country"])
    lake = opened(settings)
    rows = [("orders", one) for one in ('{"country":"at"}', '{"country":""}', "{}", '{"country":"ch"}')]
    assert len(fill(lake, settings, batch(rows))) == 3
    assert query(lake, "select seq, country, _rescued from t order by seq") == [
        {"seq": 1, "country": "at", "_rescued": None},
        {"seq": 2, "country": None, "_rescued": '{"country":""}'},
        {"seq": 3, "country": None, "_rescued": None},
        {"seq": 4, "country": "ch", "_rescued": None},
    ]


def test_partitions_are_merged_by_themselves_and_clusters_stay_in_order(table: str) -> None:
    settings = archive(table, schema="n INT", partition_by=["topic"], cluster_by=["n"])
    lake = opened(settings)
    for first in range(1, 17, 2):
        rows = [("orders", f'{{"n":{first * 7 % 10}}}'), ("other", f'{{"n":{first * 3 % 10}}}')]
        fill(lake, settings, batch(rows, first))
    fill(lake, settings, batch([("alone", '{"n":5}')], 17))
    groups = due(lake.files(), 1 << 20)
    topics = [{one.partition["topic"] for one in group} for group in groups]
    assert sorted(map(sorted, topics)) == [["orders"], ["other"]]
    layout = Layout(lake.partition_by, ("n",))
    for group in groups:
        lake.replace(group, merge(lake.location, 1 << 20, layout, lake.columns, group))
    assert len(lake.files()) == 3
    for one in lake.files():
        values = pa.Table.from_batches(parquet.read_file(lake.location, one.path))["n"].to_pylist()
        assert values == sorted(values)
        assert (one.low["n"], one.high["n"]) == (values[0], values[-1])
    assert [row["seq"] for row in query(lake, "select seq from t order by seq")] == list(range(1, 18))


def test_columns_are_added_if_asked_and_types_never_change(table: str) -> None:
    opened(archive(table, schema="a INT"))
    version = DeltaTable(table).version()

    def refused(**more: Any) -> str:
        with pytest.raises(PipelineFailed) as found:
            opened(archive(table, **more))
        assert DeltaTable(table).version() == version
        assert "\n" not in str(found.value)
        return str(found.value)

    assert 'its column "a" is int32 and not int64' in refused(schema="a BIGINT")
    assert 'its column "a" is int32 and not int64' in refused(schema="a BIGINT", evolve=True)
    assert 'it has no column "b": with evolve = true it is added' in refused(schema="a INT, b INT")
    assert 'it has a column "a"' in refused(schema="A INT", evolve=True)
    assert 'it has a column "_rescued": give its schema' in refused()
    assert "it is partitioned by nothing" in refused(schema="a INT", partition_by=["topic"])
    assert 'it has no column "day"' in refused(schema="a INT", cluster_by=["day"])
    lake = opened(archive(table, schema="a INT, b INT", evolve=True))
    assert lake.columns.names == [*RECORDS.names, "a", "_rescued", "b"]
    assert opened(archive(table, schema="a INT")).columns == lake.columns, "more columns are no obstacle"


def test_an_old_table_gets_columns_only_if_asked(table: str) -> None:
    lake = Lake(table)
    lake.commit(list(write_files([records(1, 3)], lake.location)), {}, {"orders": StreamOffset(3, 1)}, [])
    with pytest.raises(PipelineFailed, match='does not fit schema: it has no column "a"'):
        opened(archive(table, schema="a INT"))
    settings = archive(table, schema="a INT", evolve=True)
    lake = opened(settings)
    fill(lake, settings, batch([("orders", '{"a":1}')], 4))
    assert [row["a"] for row in query(lake, "select a from t order by seq")] == [None, None, None, 1]
    merged = merge(lake.location, 1 << 20, Layout(), lake.columns, lake.files())
    lake.replace(lake.files(), merged)
    assert [row["a"] for row in query(lake, "select a from t order by seq")] == [None, None, None, 1]


def test_two_writers_may_add_the_same_column(table: str) -> None:
    opened(archive(table, evolve=True))
    one, other = Lake(table), Lake(table)
    one.add_columns(pa.schema([("n", pa.int64())]))
    other.add_columns(pa.schema([("n", pa.float64()), ("m", pa.string())]))
    assert Lake(table).columns.field("n").type == pa.int64()
    assert Lake(table).columns.names[-2:] == ["n", "m"]


def test_a_table_that_others_partitioned_is_not_ours(table: str) -> None:
    write_deltalake(table, pa.Table.from_batches([records(1, 3)]), partition_by=["topic"])
    for attempt in (lambda: opened(archive(table, partition_by=["topic"])), lambda: Lake.existing(table)):
        with pytest.raises(PipelineFailed, match="it is partitioned by topic"):
            attempt()


def test_a_task_may_have_more_partitions_than_files_are_open_at_a_time(table: str) -> None:
    settings = archive(table, partition_by=["topic"])
    lake = opened(settings)
    topics = [f"t{n}" for n in range(parquet.MOST_OPEN + 9)]
    files = fill(lake, settings, batch([(name, "1") for name in topics]))
    assert sorted(one.partition["topic"] for one in files) == sorted(topics)


def test_long_texts_are_not_told_in_the_log(table: str) -> None:
    settings = archive(table, schema="s STRING", cluster_by=["s"])
    lake = opened(settings)
    (one,) = fill(lake, settings, batch([("orders", '{"s":"%s"}' % ("x" * 300))]))
    assert "s" not in one.low
    (one,) = fill(lake, settings, batch([("orders", '{"s":"y"}')], 2))
    assert (one.low["s"], one.high["s"]) == ("y", "y")
