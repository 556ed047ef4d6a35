"""What the log of a table has noted is asked for no more often than it can have changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines import delta_table
from pyspark_topics.pipelines.compaction import KEEP_REMOVED_HOURS
from pyspark_topics.pipelines.delta_table import Folder
from pyspark_topics.pipelines.lake import Gap, Lake
from pyspark_topics.pipelines.parquet import write_files
from tests.spark.pipelines.lakes import add, records, seqs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is asked of a log; delta-rs reads every commit since the last checkpoint for it."""
    found: list[str] = []
    for name in ("transaction_version", "history"):
        monkeypatch.setattr(DeltaTable, name, _noting(getattr(DeltaTable, name), found))
    return found


def _noting(plain: Any, found: list[str]) -> Any:
    def noted(table: DeltaTable, *arguments: Any) -> Any:
        found.append(plain.__name__)
        return plain(table, *arguments)

    return noted


def test_while_only_we_commit_nothing_is_asked(lake: Lake, asked: list[str]) -> None:
    add(lake, 1, 3)
    old = add(lake, 4, 5)
    lake.replace(old, write_files([records(4, 5)], lake.location))
    add(lake, 6, 6)
    assert asked == []
    assert lake.position("orders") == Lake(lake.path).position("orders") == StreamOffset(6, 1)


def test_what_was_there_is_asked_once(lake: Lake, asked: list[str]) -> None:
    add(lake, 1, 3)
    again = Lake(lake.path)
    for seq in (4, 5, 6):
        add(again, seq, seq)
    # Where the topic stands, and in which life; then which gaps the commits have that are no rows yet.
    assert asked == ["transaction_version", "transaction_version", "history"]


@pytest.mark.parametrize("looks", [True, False])
def test_others_are_seen_when_they_have_moved_on(lake: Lake, looks: bool) -> None:
    add(lake, 1, 3)
    assert lake.position("other") is None
    Lake(lake.path).commit([], {}, {"other": StreamOffset(2, 1)}, [])
    assert lake.position("other") is None, "as the table was when we looked"
    if looks:
        lake.refresh()
    lake.replace([], [])
    assert lake.position("other") == StreamOffset(2, 1)
    assert lake.position("orders") == StreamOffset(3, 1)


def test_another_position_is_seen_with_a_look(lake: Lake) -> None:
    add(lake, 1, 3)
    add(Lake(lake.path), 4, 5)
    assert lake.position("orders") == StreamOffset(3, 1)
    lake.refresh()
    assert lake.position("orders") == StreamOffset(5, 1)


def test_gaps_of_one_that_was_killed_are_rows_with_our_next_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(lake, 1, 3)
    other, gap = Lake(lake.path), Gap("other", 1, 1, 2, "cap")
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "note_gaps", lambda self: None)
        other.commit([], {}, {"other": StreamOffset(2, 1)}, [gap])
    add(lake, 4, 5)
    assert Lake(lake.path).gaps() == [gap]


def test_there_is_no_commit_where_gaps_have_no_table(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Folder.make_table

    def failing(where: Folder, *arguments: Any) -> DeltaTable:
        if where.uri.endswith("_gaps"):
            raise OSError("no room")
        return plain(where, *arguments)

    monkeypatch.setattr(Folder, "make_table", failing)
    lake = Lake(table)
    with pytest.raises(PipelineFailed, match=f"cannot make a table at {table}_gaps: no room"):
        add(lake, 1, 3)
    assert DeltaTable(table).version() == 0


def test_files_that_others_have_committed_are_not_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(lake, 1, 3)
    (theirs,) = add(Lake(lake.path), 4, 5)
    path = Path(lake.path, theirs.path)
    os.utime(path, (1, 1))
    monkeypatch.setattr(delta_table, "_FRESH_S", -1.0)  # an hour goes by
    lake.vacuum(KEEP_REMOVED_HOURS)
    assert path.exists()
    assert seqs(lake) == [1, 2, 3, 4, 5]


def test_the_log_is_listed_for_old_commits_only_now_and_then(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: list[bool | None] = []
    plain = DeltaTable.create_write_transaction

    def noted(table: DeltaTable, *arguments: Any, **more: Any) -> None:
        tidied.append(more["post_commithook_properties"].cleanup_expired_logs)
        plain(table, *arguments, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", noted)
    monkeypatch.setattr(delta_table, "_TIDY_EVERY", 3)
    for seq in range(1, 7):
        add(lake, seq, seq)
    assert tidied == [False, False, None, False, False, None]
