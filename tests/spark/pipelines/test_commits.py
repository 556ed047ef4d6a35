"""What the log of a table has noted, by us and by others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines.compaction import KEEP_REMOVED_HOURS
from pyspark_topics.pipelines.delta_table import Folder
from pyspark_topics.pipelines.lake import Gap, Lake
from tests.spark.pipelines.lakes import add, forget_gaps, seqs


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


def test_gaps_of_one_that_was_killed_are_rows_with_our_next_commit(lake: Lake) -> None:
    add(lake, 1, 3)
    other, gap = Lake(lake.path), Gap("other", 1, 1, 2, "cap")
    other.commit([], {}, {"other": StreamOffset(2, 1)}, [gap])
    forget_gaps(other)
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


def test_files_that_others_have_committed_are_not_removed(lake: Lake) -> None:
    add(lake, 1, 3)
    (theirs,) = add(Lake(lake.path), 4, 5)
    path = Path(lake.path, theirs.path)
    os.utime(path, (1, 1))
    lake.vacuum(KEEP_REMOVED_HOURS)
    assert path.exists()
    assert seqs(lake) == [1, 2, 3, 4, 5]
