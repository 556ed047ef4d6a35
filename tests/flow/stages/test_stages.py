"""Stages: invisible until the commit, then all at once, and exactly once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stages.lab import LargeLab, StageLab, ranges, request_of
from tests.support.arrow import arrow_stream
from topics.core.errors import ApiError
from topics.flow.load_shedder import SHED_FROM_MS
from topics.flow.stages import stages as stages_module
from topics.flow.stages.identities import Commit
from topics.flow.stages.spool import IDLE_MS


@pytest.fixture(params=[StageLab, LargeLab], ids=["frame", "segments"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> StageLab:
    """What is said here holds for a commit of any size."""
    kind: type[StageLab] = request.param
    return kind(tmp_path)


# --- what a commit does -----------------------------------------------------------------------------------


def test_a_commit_without_room_for_all_its_topics_creates_none(tmp_path: Path) -> None:
    lab = StageLab(tmp_path, max_topics=3)
    lab.write("a", "before")
    lab.part("0", {"topic": ["a", "b", "c", "d"], "data": ["1", "2", "3", "4"]})
    with pytest.raises(ApiError) as refused:
        lab.commit_stage("0")
    assert refused.value.detail == {"limit": "max_topics", "max": 3}
    assert list(lab.engine.by_name) == ["a"]
    lab.part("1", {"topic": ["a", "b", "c"], "data": ["1", "2", "3"]})
    lab.commit_stage("1")
    assert list(lab.engine.by_name) == ["a", "b", "c"]


def test_topics_are_checked_for_parts(lab: StageLab) -> None:
    def only_a(name: str) -> None:
        if name != "a":
            raise ApiError("forbidden", name)

    body = arrow_stream({"data": ["1"], "topic": ["b"]})
    with pytest.raises(ApiError, match="b"):
        lab.run(lambda: lab.stages.put_part("a", "s", "0", body, None, only_a))
    with pytest.raises(ApiError, match="not there"):
        lab.commit_stage("0", owner="a")
    assert lab.engine.find("b") is None


# --- all or nothing ---------------------------------------------------------------------------------------


def test_a_topic_that_refuses_its_rows_refuses_the_whole_commit(lab: StageLab) -> None:
    lab.put("full", cap_records=2, discard="reject")
    lab.write("full", 1)
    lab.part("0", {"topic": ["a", "full"], "data": ["1", "2"]}, {"topic": ["full", "a"], "data": ["3", "4"]})
    with pytest.raises(ApiError) as refusal:
        lab.commit_stage("0")
    assert refusal.value.code == "topic_full"
    assert lab.data("full") == [1]
    assert "a" not in lab.engine.by_name
    lab.delete("full", before=2)
    assert lab.commit_stage("0") == ({"a": (1, 2, 2), "full": (2, 3, 2)}, False)


def test_a_commit_writes_to_so_many_topics_at_most(lab: StageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "MAX_TOPICS", 2)
    lab.part("0", {"topic": ["a", "b", "c"], "data": ["1", "2", "3"]})
    with pytest.raises(ApiError, match="at most 2 topics"):
        lab.commit_stage("0")
    assert not lab.engine.by_name
    lab.part("0", {"topic": ["a", "b", "a"], "data": ["1", "2", "3"]})
    assert lab.commit_stage("0") == ({"a": (1, 2, 2), "b": (1, 1, 1)}, False)


def test_a_commit_is_as_important_as_the_most_important_topic_it_writes_to(lab: StageLab) -> None:
    lab.put("low", priority=-5)
    lab.put("high", priority=900)
    lab.load_shedder.lag_ms = 2 * SHED_FROM_MS
    lab.part("0", {"topic": ["low"], "data": ["1"]})
    with pytest.raises(ApiError) as refusal:
        lab.commit_stage("0")
    assert refusal.value.code == "throttled"
    lab.part("0", {"topic": ["high", "low"], "data": ["1", "2"]})
    assert lab.commit_stage("0") == ({"high": (1, 1, 1), "low": (1, 1, 1)}, False)


def test_the_quota_of_all_topics_counts_for_the_whole_commit(tmp_path: Path) -> None:
    lab = StageLab(tmp_path, max_total_bytes=5)
    lab.part("0", {"topic": ["a", "b"], "data": ["123", "456"]})
    with pytest.raises(ApiError) as refusal:
        lab.commit_stage("0")
    assert refusal.value.detail == {"limit": "max_total_bytes", "max": 5}
    assert not lab.engine.by_name


def test_readers_of_one_topic_find_the_others_complete_when_they_are_woken(lab: StageLab) -> None:
    for name in "ab":
        lab.write(name, 0)
    heads: list[tuple[int, int]] = []
    for name in "ab":
        lab.topic(name).listeners.append(lambda: heads.append((lab.topic("a").head, lab.topic("b").head)))
    lab.part("0", {"topic": ["a", "b"], "data": ["1", "2"]})
    lab.commit_stage("0")
    assert heads == [(2, 2), (2, 2)]


# --- exactly once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        {"data": ["1", "3"], "tag": ["x", None]},
        {"data": ["1"], "tag": ["x"]},
        {"data": ["1", "2"], "tag": [None, "x"]},
        {"data": ["1", "2", "2"], "tag": ["x", None, None]},
        {"data": ["1", "2"], "tag": ["x", None], "topic": ["a", "b"]},
        {"data": ["1", "2"], "tag": ["x", None], "node": ["n", None]},
    ],
)
def test_a_repeat_with_other_rows_is_a_conflict(lab: StageLab, rows: dict[str, list[Any]]) -> None:
    lab.part("0", {"data": ["1", "2"], "tag": ["x", None]}, topic="a")
    lab.commit_stage("0")
    lab.part("0", rows, topic="a")
    with pytest.raises(ApiError) as refusal:
        lab.commit_stage("0")
    assert refusal.value.code == "stage_conflict"
    assert lab.data("a") == [1, 2]


def test_commits_of_one_identity_that_run_at_once_commit_once(lab: StageLab) -> None:
    lab.part("0", {"data": ["1"]}, topic="a")
    request = request_of("0")

    async def both() -> list[tuple[Commit, bool]]:
        return await asyncio.gather(lab.stages.commit(request), lab.stages.commit(request))

    first, second = lab.run(both)
    assert (first[1], second[1]) == (False, True)
    assert ranges(first[0]) == ranges(second[0]) == {"a": (1, 1, 1)}
    assert lab.data("a") == [1]


# --- giving up --------------------------------------------------------------------------------------------


def test_idle_stages_are_collected_and_active_ones_are_not(lab: StageLab) -> None:
    lab.part("0", {"data": ["1"]}, topic="a")
    lab.clock.advance(IDLE_MS - 1)
    lab.part("0", {"data": ["1"]}, topic="a", stage="other")
    lab.collect()
    assert len(lab.spooled()) == 2
    lab.clock.advance(1)
    lab.collect()
    assert len(lab.spooled()) == 1


def test_parts_survive_a_restart_and_are_collected_after_it(lab: StageLab) -> None:
    lab.part("0", {"data": ["1"]}, topic="a")
    lab.part("0", {"data": ["1"]}, topic="a", stage="forgotten")
    lab.restart()

    async def begin() -> None:
        lab.stages.start()

    lab.run(begin)
    assert lab.commit_stage("0") == ({"a": (1, 1, 1)}, False)
    lab.clock.advance(IDLE_MS)
    lab.collect()
    assert lab.spooled() == []


def test_a_commit_that_is_too_large_is_refused(lab: StageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "MAX_STAGE_BYTES", 10)
    lab.part("0", {"data": ['"hello"']}, topic="a")
    with pytest.raises(ApiError) as refusal:
        lab.commit_stage("0")
    assert refusal.value.code == "payload_too_large"
