"""Sealing in passes: what a pass leaves over, and what becomes of a file that could not be written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from tests.support.disk import FullDisk
from topics.log import read_page
from topics.log.seal import sealer as sealing
from topics.log.seal.sealer import HotRuns, SegmentPlan, _deleted_since


def fill(lab: Lab, runs: int) -> None:
    for at in range(runs):
        lab.write("t", *range(4 * at, 4 * at + 4))


def seqs(lab: Lab) -> int:
    return read_page(lab.engine, lab.engine.require("t"), 0, 1000, 1 << 20).count


@pytest.mark.parametrize(
    ("runs", "small_bytes", "files"),
    [(8, 0, 8), (9, 0, 1), (17, 0, 2), (17, 1 << 20, 17), (65, 1 << 20, 5)],
)
def test_runs_share_files_only_when_there_are_many(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, runs: int, small_bytes: int, files: int
) -> None:
    monkeypatch.setattr(sealing, "SEPARATE_SMALL_BYTES", small_bytes)
    fill(lab, runs)
    lab.checkpoint()
    assert len(lab.segment_files()) == files
    assert seqs(lab) == 4 * runs
    lab.restart()
    assert seqs(lab) == 4 * runs


def test_a_run_that_did_not_fit_on_the_disk_grows_while_the_error_is_known(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(segment_max_events=100)
    lab.write("t", 1, 2)
    with monkeypatch.context() as full:
        full.setattr(lab.disk, "create", FullDisk().create)
        with pytest.raises(OSError, match="No space") as known:
            lab.checkpoint(everything=True)
    lab.write("t", 3)
    assert seqs(lab) == 3
    assert known.tb is not None


def test_many_runs_are_planned_and_adopted_in_steps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "STEP_RUNS", 2)
    for number in range(7):
        lab.write(f"t{number}", number)
    plan: list[SegmentPlan] = []
    assert len(list(lab.checkpointer.sealer.plan_in_steps(plan, everything=True))) == 3
    assert [len(file.sealings) for file in plan] == [7]
    lab.checkpointer.sealer.write(plan[0])
    steps = lab.checkpointer.sealer.adopt_in_steps(plan[0])
    next(steps)
    lab.delete("t6", before=2)  # emptied while the others were adopted
    assert len(list(steps)) == 2
    lab.checkpoint()
    lab.restart()
    assert [lab.seqs(f"t{number}") for number in range(7)] == [[1]] * 6 + [[]]


def test_what_is_deleted_while_a_file_is_written_is_noted(lab: Lab) -> None:
    """And what was deleted before is in the file, and not noted again."""
    lab.write("t", *({"data": n, "tag": f"k{n}"} for n in range(1, 5)))
    lab.delete("t", match="k2")
    (run,) = lab.topic("t").runs
    assert run.dead is not None
    known = bytes(run.dead)
    assert _deleted_since(run, known).tolist() == []
    lab.delete("t", match="k4")
    assert _deleted_since(run, known).tolist() == [3]
    assert _deleted_since(run, known[:2]).tolist() == [3]
    assert _deleted_since(run, None).tolist() == [1, 3]


def test_what_is_not_sealed_yet_takes_the_place_of_what_is(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(hot_bytes=3000)
    sealer = lab.checkpointer.sealer
    fill(lab, 10)
    lab.checkpoint()
    assert 2000 < sealer.hot_bytes <= 3000
    unsealed = lab.engine.store.unsealed
    while unsealed.bytes < 2000:
        lab.write("t", 1)
    assert sealer.hot_bytes + unsealed.bytes > 3000
    sealer.make_room()
    assert sealer.hot_bytes + unsealed.bytes <= 3000
    hot_bytes = sealer.hot_bytes
    assert hot_bytes
    sealer.make_room()
    assert sealer.hot_bytes == hot_bytes


def planned(lab: Lab, *, everything: bool = False, upto: int = 0) -> list[list[str]]:
    """The topics of each file. Whatever was planned may be planned again."""
    plan = lab.checkpointer.sealer.plan(everything=everything, upto=upto)
    lab.checkpointer.sealer.abandon(plan)
    return [[one.topic.name for one in file.sealings] for file in plan]


def sizes(lab: Lab, *names: str) -> list[int]:
    """Of the rows of the last run of each."""
    hot = [lab.topic(name).runs[-1].hot for name in names]
    return [one.size for one in hot if one is not None]


def test_a_run_that_is_not_full_is_sealed_for_its_age_or_for_its_journal(lab: Lab) -> None:
    """Not a millisecond and not a byte sooner, even if it was about to be once before."""
    lab.write("t", 1)
    (run,) = lab.topic("t").runs
    for before in (False, True):
        assert planned(lab) == []
        assert planned(lab, upto=run.start_position) == []
        assert planned(lab, upto=run.start_position + 1) == [["t"]]
        assert planned(lab, everything=before) == [["t"]] * before
    lab.clock.advance(lab.engine.settings.seal_age_ms)
    assert planned(lab) == []
    lab.clock.advance(1)
    assert planned(lab) == [["t"]]


def test_no_more_journal_is_kept_for_slow_topics_than_is_said(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write("t", 1)
    (run,) = lab.topic("t").runs
    kept = lab.engine.journal.position - run.start_position
    monkeypatch.setattr(sealing, "JOURNAL_RETAIN_BYTES", kept)
    assert planned(lab) == []
    monkeypatch.setattr(sealing, "JOURNAL_RETAIN_BYTES", kept - 1)
    assert planned(lab) == [["t"]]
    assert planned(lab, upto=1) == [["t"]]


@pytest.mark.parametrize(("most", "is_behind"), [(2, True), (3, False)])
def test_a_pass_that_took_as_many_as_it_may_is_not_the_last(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, most: int, is_behind: bool
) -> None:
    monkeypatch.setattr(sealing, "PASS_RUNS", most)
    fill(lab, 2)
    assert planned(lab) == [["t"], ["t"]]
    assert lab.checkpointer.sealer.is_behind == is_behind


def test_a_pass_and_a_file_end_with_the_run_that_fills_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        lab.write(name, 1)
    first, second, _ = sizes(lab, *"abc")
    monkeypatch.setattr(sealing, "PACKED_FILE_BYTES", first + second)
    assert planned(lab, everything=True) == [["a", "b"], ["c"]]
    lab.clock.advance(lab.engine.settings.seal_age_ms + 1)
    monkeypatch.setattr(sealing, "PASS_BYTES", first + second)
    assert planned(lab) == [["a", "b"]]
    assert lab.checkpointer.sealer.is_behind


def test_small_runs_have_files_of_their_own_as_long_as_they_are_few_and_small(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "SEPARATE_RUNS", 1)
    monkeypatch.setattr(sealing, "SEPARATE_SMALL_RUNS", 3)
    fill(lab, 3)
    whole = sum(run.hot.size for run in lab.topic("t").runs if run.hot is not None)
    for small_bytes, files in ((whole, 3), (whole - 1, 1)):
        monkeypatch.setattr(sealing, "SEPARATE_SMALL_BYTES", small_bytes)
        assert len(planned(lab)) == files
    monkeypatch.setattr(sealing, "SEPARATE_SMALL_BYTES", 2 * whole)
    fill(lab, 1)
    assert len(planned(lab)) == 1


def test_memory_may_be_used_to_the_last_byte(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(hot_bytes=1 << 20)
    fill(lab, 2)
    lab.checkpoint()
    first, second = (run.hot.weight for run in lab.topic("t").runs if run.hot is not None)
    for budget, left in ((first + second + 5, 2), (first + second + 4, 1)):
        hot = HotRuns(budget)
        for run in lab.topic("t").runs:
            if run.hot is not None:
                hot.add(run)
        hot.shrink(5)
        assert sum(run.hot is not None for run in lab.topic("t").runs) == left
