"""Rows in files: partitions apart, clusters in order, and everything that was given."""

from __future__ import annotations

import random

import pyarrow as pa

from pyspark_topics.pipelines.table_schema import Layout


def rows(count: int, seed: int = 1) -> pa.Table:
    chance = random.Random(seed)
    return pa.table(
        {
            "topic": pa.array([chance.choice("ab") for _ in range(count)]),
            "epoch": pa.array([1] * count, pa.int64()),
            "seq": pa.array(range(seed * 1000, seed * 1000 + count), pa.int64()),
            "n": pa.array([chance.choice([None, 1, 2, 3]) for _ in range(count)], pa.int64()),
        }
    )


def test_partitions_are_taken_apart_and_null_is_one() -> None:
    table = rows(50)
    parts = list(Layout(("topic", "n")).split(table))
    assert len(parts) == 8
    for partition, part in parts:
        for name, value in partition:
            assert set(part[name].to_pylist()) == {value}
        assert part["seq"].to_pylist() == sorted(part["seq"].to_pylist()), "in the order they came"
    assert sorted(seq for _, part in parts for seq in part["seq"].to_pylist()) == table["seq"].to_pylist()
    assert list(Layout().split(table)) == [((), table)]


def test_files_that_are_in_order_are_merged_in_order() -> None:
    layout = Layout(cluster_by=("n", "topic"))
    files = [layout.ordered(rows(40, seed)) for seed in (1, 2, 3)]
    merged = pa.Table.from_batches(layout.merged([iter(file.to_batches(7)) for file in files]))
    assert merged == layout.ordered(pa.concat_tables(files))


def test_nothing_is_lost_of_files_in_no_order() -> None:
    files = [rows(40, seed) for seed in (1, 2)]
    merged = pa.Table.from_batches(Layout(cluster_by=("n",)).merged([iter(f.to_batches(7)) for f in files]))
    assert sorted(merged["seq"].to_pylist()) == sorted(pa.concat_tables(files)["seq"].to_pylist())
    plain = pa.Table.from_batches(Layout().merged([iter(f.to_batches(7)) for f in files]))
    assert plain["seq"].to_pylist() == pa.concat_tables(files)["seq"].to_pylist()
