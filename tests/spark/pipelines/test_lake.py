"""The lake without Spark: files, commits, positions, gaps, and who wins when two write at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_topics.offsets import Position
from pyspark_topics.pipelines import lake as lake_module
from pyspark_topics.pipelines import parquet
from pyspark_topics.pipelines.compaction import KEEP_REMOVED_HOURS, Compaction, merge
from pyspark_topics.pipelines.lake import RECORDS, Collision, Gap, Lake
from pyspark_topics.pipelines.parquet import DataFile, write_files


def records(first: int, last: int, topic: str = "orders") -> pa.RecordBatch:
    count = last - first + 1
    columns = {
        "topic": [topic] * count,
        "epoch": [1] * count,
        "seq": list(range(first, last + 1)),
        "ts": [n * 1000 for n in range(first, last + 1)],
        "data": [str(n) for n in range(first, last + 1)],
    }
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def add(lake: Lake, first: int, last: int, *gaps: Gap) -> list[DataFile]:
    files = list(write_files([records(first, last)], lake.path))
    lake.commit(files, {"orders": Position(last, 1)}, gaps)
    return files


def seqs(lake: Lake) -> list[int]:
    found: list[int] = Lake(lake.path).records.to_pyarrow_table()["seq"].to_pylist()
    return sorted(found)


# --- files ----------------------------------------------------------------------------------------------


def test_files_say_what_is_in_them(tmp_path: Path) -> None:
    (one,) = write_files([records(1, 3), records(4, 9)], str(tmp_path))
    assert (one.rows, one.low["seq"], one.high["seq"]) == (9, 1, 9)
    assert (one.low["topic"], one.high["epoch"]) == ("orders", 1)
    assert one.size == (tmp_path / one.path).stat().st_size
    file = pq.ParquetFile(tmp_path / one.path)
    assert file.metadata.row_group(0).column(2).compression == "ZSTD"
    assert file.read()["data"].to_pylist() == [str(n) for n in range(1, 10)]


def test_files_end_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    files = list(write_files([records(n, n + 9) for n in range(1, 100, 10)], str(tmp_path), 1500))
    assert 1 < len(files) < 10
    assert sum(one.rows for one in files) == 100
    assert [one.low["seq"] for one in files] == sorted(one.low["seq"] for one in files)


def test_a_file_is_synced_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    (one,) = write_files([records(1, 3)], str(tmp_path))
    assert synced == [str(tmp_path / one.path), str(tmp_path)]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield records(1, 3)
        raise OSError("the server is gone")

    with pytest.raises(OSError, match="gone"):
        list(write_files(breaks(), str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


# --- commits --------------------------------------------------------------------------------------------


def test_a_lake_may_lie_anywhere(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "my lake" / "café"))
    (one,) = add(lake, 1, 3, Gap("orders", 1, 1, 2, "cap"))
    assert lake.file_paths() == [os.path.join(lake.path, one.path)]
    assert pq.read_table(lake.file_paths()[0])["seq"].to_pylist() == [1, 2, 3]
    assert Lake(lake.path).gaps() == [Gap("orders", 1, 1, 2, "cap")]


def test_files_and_positions_move_together(lake: Lake) -> None:
    assert lake.position("orders") is None
    add(lake, 1, 3)
    add(lake, 4, 5)
    assert seqs(lake) == [1, 2, 3, 4, 5]
    assert Lake(lake.path).position("orders") == Position(5, 1)
    assert Lake(lake.path).archived("orders", 1) == 5
    assert Lake(lake.path).archived("orders", 2) is None


def test_a_commit_is_synced_when_it_returns(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    files = list(write_files([records(1, 3)], lake.path))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    lake.commit(files, {"orders": Position(3, 1)}, [])
    log = f"{lake.path}/_delta_log"
    assert synced == [f"{log}/{lake.records.version():020}.json", log]


def test_whoever_moves_a_topic_second_collides(lake: Lake) -> None:
    slow = Lake(lake.path)
    add(lake, 1, 3)
    with pytest.raises(Collision, match="something else wrote to"):
        add(slow, 1, 3)
    assert seqs(lake) == [1, 2, 3]
    slow.refresh()
    add(slow, 4, 4)
    assert seqs(lake) == [1, 2, 3, 4]


def test_two_topics_do_not_collide(lake: Lake) -> None:
    slow = Lake(lake.path)
    add(lake, 1, 3)
    files = list(write_files([records(1, 2, "other")], lake.path))
    slow.commit(files, {"other": Position(2, 1)}, [])
    assert seqs(lake) == [1, 1, 2, 2, 3]


def test_whoever_rewrites_a_file_second_collides(lake: Lake) -> None:
    old = add(lake, 1, 3)
    slow = Lake(lake.path)
    lake.replace(old, merge(lake.path, 1, old))
    with pytest.raises(Collision):
        slow.replace(old, merge(lake.path, 1, old))
    assert seqs(lake) == [1, 2, 3]


# --- gaps -----------------------------------------------------------------------------------------------


def test_gaps_become_rows_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Gap("orders", 1, 1, 2, "cap"), Gap("orders", 1, 4, None, "recreated")
    with monkeypatch.context() as patch:  # killed between the two commits
        patch.setattr(Lake, "note_gaps", lambda self: None)
        add(lake, 3, 3, first)
    again = Lake(lake.path)
    assert again.gaps() == []
    again.note_gaps()
    again.note_gaps()
    add(again, 5, 5, second)
    assert Lake(lake.path).gaps() == [first, second]


def test_commits_without_gaps_are_not_looked_through_for_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_module, "_NOTE_EVERY", 3)
    for n in range(1, 5):
        add(lake, n, n)
    assert Lake(lake.path)._noted == 3
    assert Lake(lake.path).gaps() == []


# --- old files ------------------------------------------------------------------------------------------


def test_files_nobody_refers_to_go_after_a_week(lake: Lake) -> None:
    add(lake, 1, 3)
    folder = Path(lake.path)
    long_ago = time.time() - (KEEP_REMOVED_HOURS + 1) * 3600
    (old,) = write_files([records(7, 9)], lake.path)
    (young,) = write_files([records(7, 9)], lake.path)
    os.utime(folder / old.path, (long_ago, long_ago))
    Compaction(lake, 1 << 20)._vacuum()
    assert not (folder / old.path).exists()
    assert (folder / young.path).exists()
    assert seqs(lake) == [1, 2, 3]
