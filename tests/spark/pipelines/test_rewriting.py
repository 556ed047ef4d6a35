"""Files of the lake written again: which are merged, and who wins when two rewrite at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_topics.pipelines.compaction import KEEP_REMOVED_HOURS, Compaction, due, merge
from pyspark_topics.pipelines.delta_table import Collision
from pyspark_topics.pipelines.erase import Tagged, strip_file
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import PLAIN, DataFile, write_files
from tests.spark.pipelines.lakes import add, records, seqs


def file(size: int, seq: int = 1) -> DataFile:
    return DataFile(f"{size}-{seq}", size, 1, {"topic": "t", "epoch": 1, "seq": seq}, {})


def test_files_are_merged_with_others_of_their_size() -> None:
    target = 128 << 20
    tiny = [file(1000, seq) for seq in range(7)]
    large = [file(20 << 20, seq) for seq in range(6)]
    assert due([*tiny, *large], target) == []
    assert due([*tiny, file(1000, 99), *large], target) == [[*tiny, file(1000, 99)]]
    # Seven of this size make a file of the target size: no need to wait for an eighth.
    assert due([*large, file(20 << 20, 99)], target) == [[*large, file(20 << 20, 99)]]
    assert due([file(target) for _ in range(20)], target) == []


def test_the_second_to_rewrite_a_file_collides(lake: Lake) -> None:
    old = add(lake, 1, 3)
    slow = Lake(lake.path)
    lake.replace(old, merge(lake.location, 1, PLAIN, lake.columns, old))
    with pytest.raises(Collision):
        slow.replace(old, merge(lake.location, 1, PLAIN, lake.columns, old))
    assert seqs(lake) == [1, 2, 3]


def test_files_that_no_commit_names_go_after_a_week(lake: Lake) -> None:
    add(lake, 1, 3)
    folder = Path(lake.path)
    long_ago = time.time() - (KEEP_REMOVED_HOURS + 1) * 3600
    (old,) = write_files([records(7, 9)], lake.location)
    (young,) = write_files([records(7, 9)], lake.location)
    os.utime(folder / old.path, (long_ago, long_ago))
    Compaction(lake, 1 << 20).vacuum()
    assert (folder / old.path).exists(), "the table was made by us: it is not looked through at once"
    Compaction(Lake(lake.path), 1 << 20).vacuum()
    assert not (folder / old.path).exists()
    assert (folder / young.path).exists()
    assert seqs(lake) == [1, 2, 3]


@pytest.mark.parametrize(
    ("tagged", "count"),
    [
        (Tagged("t1"), 1),
        (Tagged("t*"), 3),
        (Tagged("t*", frozenset({"other"})), 0),
        (Tagged("t*", frozenset({"other"}), "ord.*"), 3),
        (Tagged("u"), 0),
    ],
)
def test_only_files_that_hold_such_records_are_written_again(lake: Lake, tagged: Tagged, count: int) -> None:
    batch = records(1, 5)
    tags = ["t1", None, "t2", "t3", ""]
    at = batch.schema.get_field_index("tag")
    (file,) = write_files([batch.set_column(at, batch.schema.field(at), pa.array(tags))], lake.location)
    found = strip_file(lake.location, PLAIN, tagged, file)
    if not count:
        assert found is None
        return
    assert found is not None
    assert (found.old, found.records, sum(one.rows for one in found.new)) == (file, count, 5 - count)
