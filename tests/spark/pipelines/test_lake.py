"""The lake without Spark: files, commits, positions, gaps, and who wins when two write at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines.delta_table import Collision
from pyspark_topics.pipelines.lake import Gap, Lake
from pyspark_topics.pipelines.parquet import write_files
from pyspark_topics.pipelines.table_schema import RECORDS
from tests.spark.pipelines.lakes import add, forget_gaps, records, seqs

# --- commits --------------------------------------------------------------------------------------------


def test_a_lake_may_lie_anywhere(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "my lake" / "café"))
    (one,) = add(lake, 1, 3, Gap("orders", 1, 1, 2, "cap"))
    assert pq.read_table(os.path.join(lake.path, one.path))["seq"].to_pylist() == [1, 2, 3]
    assert Lake(lake.path).gaps() == [Gap("orders", 1, 1, 2, "cap")]


def test_files_and_positions_move_together(lake: Lake) -> None:
    assert lake.position("orders") is None
    add(lake, 1, 3)
    add(lake, 4, 5)
    assert seqs(lake) == [1, 2, 3, 4, 5]
    assert Lake(lake.path).position("orders") == StreamOffset(5, 1)
    assert Lake(lake.path).archived("orders", 1) == 5
    assert Lake(lake.path).archived("orders", 2) is None


def test_files_and_their_commit_are_synced_when_that_returns(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.gaps_table.version() == 0  # which is made meanwhile
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    (one,) = add(lake, 1, 3)
    log = f"{lake.path}/_delta_log"
    assert synced == [f"{lake.path}/{one.path}", lake.path, f"{log}/{lake.records.version():020}.json", log]


def test_the_second_to_move_a_topic_collides(lake: Lake) -> None:
    slow = Lake(lake.path)
    add(lake, 1, 3)
    with pytest.raises(Collision, match="something else wrote to"):
        add(slow, 1, 3)
    assert seqs(lake) == [1, 2, 3]
    slow.refresh()
    add(slow, 4, 4)
    assert seqs(lake) == [1, 2, 3, 4]


def test_a_writer_that_has_looked_meanwhile_collides_too(lake: Lake) -> None:
    """As after a merge of files, or a zombie that went on: what it read was from another position."""
    add(lake, 1, 3)
    at = {"orders": StreamOffset(3, 1)}
    slow = Lake(lake.path)
    files = list(write_files([records(4, 5)], slow.location))
    add(lake, 4, 5)
    slow.replace([], [])
    assert slow.records.version() > lake.records.version()
    with pytest.raises(Collision, match="stands at seq 5 of epoch 1, and this began at seq 3 of epoch 1"):
        slow.commit(files, at, {"orders": StreamOffset(5, 1)}, [])
    slow.discard(files)
    assert seqs(lake) == [1, 2, 3, 4, 5]
    assert not os.path.exists(os.path.join(lake.path, files[0].path))


def test_gaps_are_rows_once_also_when_two_note_them(lake: Lake) -> None:
    slow = Lake(lake.path)
    add(lake, 1, 3, Gap("orders", 1, 1, 2, "cap"))
    slow.refresh()
    slow.note_gaps()
    add(slow, 4, 4, Gap("orders", 1, 4, 4, "cap"))
    lake.note_gaps()
    add(Lake(lake.path), 5, 5)
    assert Lake(lake.path).gaps() == [Gap("orders", 1, 1, 2, "cap"), Gap("orders", 1, 4, 4, "cap")]


def test_two_topics_do_not_collide(lake: Lake) -> None:
    slow = Lake(lake.path)
    add(lake, 1, 3)
    files = list(write_files([records(1, 2, "other")], lake.location))
    slow.commit(files, {}, {"other": StreamOffset(2, 1)}, [])
    assert seqs(lake) == [1, 1, 2, 2, 3]


# --- tables that are there already ----------------------------------------------------------------------


def _with(name: str, kind: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable) if one.name == name else one for one in RECORDS])


@pytest.mark.parametrize(
    ("schema", "made", "says"),
    [
        (RECORDS, {"partition_by": ["topic"]}, "it is partitioned by topic"),
        (_with("seq", pa.string()), {}, 'its column "seq" is string and not long'),
        (_with("data", pa.struct([("a", pa.int64())])), {}, 'its column "data" is struct and not string'),
        (_with("ts", pa.timestamp("us")), {}, 'its column "ts" is timestamp_ntz and not timestamp'),
        (_with("tag", pa.string(), False), {}, 'its column "tag" cannot be NULL'),
        (pa.schema([*RECORDS, ("x", pa.int64())]), {}, 'it has a column "x"'),
        (RECORDS, {"configuration": {"delta.enableDeletionVectors": "true"}}, "deletionVectors"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_as_it_is(
    schema: pa.Schema, made: dict[str, Any], says: str, table: str
) -> None:
    DeltaTable.create(table, Schema.from_arrow(schema), **made)
    with pytest.raises(PipelineFailed, match=says):
        Lake(table)
    assert DeltaTable(table).version() == 0
    assert not os.path.exists(f"{table}_gaps")


def test_a_table_with_constraints_or_files_of_something_else_is_refused(table: str) -> None:
    DeltaTable.create(table, Schema.from_arrow(RECORDS)).alter.add_constraint({"late": "seq > 3"})
    with pytest.raises(PipelineFailed, match="it has the constraint late"):
        Lake(table)
    os.makedirs(f"{table}.2")
    Path(f"{table}.2/part-0.parquet").write_text("")
    with pytest.raises(PipelineFailed, match="has files and is no Delta table"):
        Lake(f"{table}.2")


def test_where_the_place_of_the_gaps_is_taken_no_table_is_made(table: str) -> None:
    os.makedirs(f"{table}_gaps")
    Path(f"{table}_gaps/notes.txt").write_text("")
    DeltaTable.create(f"{table}.2_gaps", Schema.from_arrow(RECORDS))
    for one, says in (
        (table, "has files and is no Delta table"),
        (f"{table}.2", "a table of something else"),
    ):
        with pytest.raises(PipelineFailed, match=f"{one}_gaps .*{says}"):
            Lake(one)
        assert not os.path.exists(one)


def test_columns_of_a_table_may_come_in_any_order(table: str) -> None:
    DeltaTable.create(table, Schema.from_arrow(pa.schema(list(reversed(RECORDS)))))
    add(Lake(table), 1, 3)
    assert seqs(Lake(table)) == [1, 2, 3]


def test_a_table_of_an_earlier_version_is_refused_with_the_way_on(table: str) -> None:
    write_deltalake(table, pa.Table.from_batches([records(1, 3)]))
    for attempt in (lambda: Lake(table), lambda: Lake.existing(table)):
        with pytest.raises(PipelineFailed, match="an earlier version of topics: replay it with") as refused:
            attempt()
        assert "\n" not in str(refused.value)
    assert DeltaTable(table).version() == 0


# --- gaps -----------------------------------------------------------------------------------------------


def test_gaps_become_rows_once(lake: Lake) -> None:
    first, second = Gap("orders", 1, 1, 2, "cap"), Gap("orders", 1, 4, None, "recreated")
    add(lake, 3, 3, first)
    forget_gaps(lake)
    again = Lake(lake.path)
    assert again.gaps() == []
    again.note_gaps()
    again.note_gaps()
    add(again, 5, 5, second)
    assert Lake(lake.path).gaps() == [first, second]


def test_commits_without_gaps_are_not_looked_through_for_ever(lake: Lake) -> None:
    for n in range(1, 53):
        add(lake, n, n)
    assert DeltaTable(f"{lake.path}_gaps").transaction_version("topics/gaps") == 50
    assert Lake(lake.path).gaps() == []


def test_a_file_that_is_part_of_the_table_is_never_discarded(lake: Lake) -> None:
    (one,) = add(lake, 1, 3)
    (other,) = write_files([records(4, 5)], lake.location)
    Lake(lake.path).discard([one, other])
    assert lake.location.files(".parquet") == {one.path}
    assert seqs(lake) == [1, 2, 3]


def test_a_table_that_several_writers_make_at_the_same_time_is_one(table: str) -> None:
    with ThreadPoolExecutor(8) as writers:
        lakes = list(writers.map(lambda _: Lake(table), range(8)))
    assert len({one.records.metadata().id for one in lakes}) == 1
    assert [seqs(one) for one in lakes] == [[]] * 8
