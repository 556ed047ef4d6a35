"""What a turn of upkeep does and what it leaves alone, driven by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.log.harness import Lab
from tests.support.appending import Appended, ByHand, append
from topics.core.errors import InvariantViolated, WritesOff
from topics.flow import cold_tier, upkeep
from topics.flow.cold_tier import ColdTier
from topics.flow.upkeep import Upkeep
from topics.log import Checkpointer
from topics.log.run import Run
from topics.log.write.commit_loop import CommitLoop

Result = TypeVar("Result")


def driven(lab: Lab, work: Callable[[Upkeep], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            return await work(Upkeep(lab.engine, commit, lab.checkpointer))
        finally:
            commit.close()

    return asyncio.run(main())


def test_topics_are_asked_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_tier, "STEP_TOPICS", 2)
    lab = Lab(tmp_path / "hot", cold_dir=str(tmp_path / "cold"))
    for name in "abcde":
        lab.put(name)
    breaks = list(ColdTier(lab.engine).due().__await__())
    assert len(breaks) == 2
    lab.kill()


def test_a_log_that_has_failed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its journal has on disk is in doubt, and a sync that succeeds later would prove nothing."""
    monkeypatch.setattr(upkeep, "enough_bytes", lambda _: 0)
    lab = Lab(tmp_path)
    lab.put("t", durability="ephemeral")
    lab.write("t", 1)
    journal = lab.engine.journal
    lab.engine.queue.give_up(OSError(5, "no"))
    before = journal.synced
    assert before < journal.position
    assert lab.engine.store.unsealed.bytes == 0, "it would be worth the while to let go of the journal"
    driven(lab, lambda keeper: keeper._turn())
    assert journal.synced == before
    lab.kill()


def test_a_log_that_fails_during_a_checkpoint_gets_no_snapshot(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write_each("t", 8)
    before = lab.snapshot_files()
    lab.engine.queue.give_up(OSError(5, "no"))
    driven(lab, lambda keeper: keeper.checkpoints.run())
    assert lab.snapshot_files() == before
    lab.kill()


def test_passes_follow_each_other_while_there_is_more_to_seal_and_then_upkeep_rests(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.write_each("t", 8)
    write_snapshot, passes = lab.checkpointer.write_snapshot, 0

    def counted(body: list[bytes]) -> None:
        nonlocal passes
        passes += 1
        lab.checkpointer.sealer.is_behind = passes < 3
        write_snapshot(body)

    async def turn(keeper: Upkeep) -> float:
        began = time.monotonic()
        await keeper._turn()
        return keeper._not_before - began

    lab.checkpointer.write_snapshot = counted  # type: ignore[method-assign,assignment]
    assert driven(lab, turn) >= 0.5
    assert passes == 3
    lab.kill()


@pytest.mark.parametrize(
    ("enough", "made", "left", "needed", "is_done"),
    [
        (1000, 0, 0, 0, True),
        (1001, 0, 0, 0, False),
        # The reserve is more than half used up, and would be half of what it was.
        (9999, 2000, 999, 0, True),
        (9999, 2000, 1000, 0, False),
        (9999, 2002, 0, 0, False),
        # An eighth stays for removals.
        (1000, 800, 150, 50, True),
        (1000, 800, 149, 50, False),
        (1000, 800, 50, 0, True),
        (1000, 800, 50, 1, False),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_on_a_full_disk_journal_goes_if_that_brings_enough_and_the_reserve_can_pay_for_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enough: int,
    made: int,
    left: int,
    needed: int,
    is_done: bool,
    is_kept: bool,
) -> None:
    """It would bring 1000 bytes; what a backup keeps is of no use to anybody."""
    lab = Lab(tmp_path)
    journal, reserve = lab.engine.journal, lab.engine.reserve
    calls: list[Upkeep] = []

    async def leave_journal(keeper: Upkeep) -> None:
        calls.append(keeper)

    async def reclaim(keeper: Upkeep) -> bool:
        await keeper._reclaim()
        return keeper._not_before > time.monotonic()

    with monkeypatch.context() as patched:
        patched.setattr(Upkeep, "_leave_journal", leave_journal)
        patched.setattr(upkeep, "enough_bytes", lambda _: enough)
        patched.setattr(journal, "retained_bytes", lambda: 1000 + needed)
        patched.setattr(journal, "kept_from", 0 if is_kept else None)
        patched.setattr(reserve, "made", made)
        patched.setattr(reserve, "size", left)
        patched.setattr(lab.engine.store.unsealed, "bytes", needed)
        rests = driven(lab, reclaim)
    assert rests is bool(calls) is (is_done and not is_kept)
    lab.kill()


@pytest.mark.parametrize(("more", "is_worth_it"), [(0, True), (-1, False)])
def test_syncs_are_small_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, is_worth_it: bool
) -> None:
    monkeypatch.setattr(upkeep, "MANY_SYNCS", 1)
    lab = Lab(tmp_path)
    lab.put("t")

    async def look(keeper: Upkeep) -> bool:
        before = lab.engine.journal.position
        lab.write("t", 1)
        lab.engine.counters.syncs_us.observe(1)
        monkeypatch.setattr(upkeep, "SMALL_SYNC_BYTES", lab.engine.journal.position - before + more)
        return keeper._is_preallocation_due()

    assert driven(lab, look) is is_worth_it
    lab.kill()


def test_topics_are_captured_before_writes_have_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that rest, not again and again."""
    lab = Lab(tmp_path)
    lab.write("t", 1)
    capture_step, pause, steps = Checkpointer.capture_step, CommitLoop.pause, list[str]()

    def captured(checkpointer: Checkpointer) -> bool:
        steps.append("capture")
        return capture_step(checkpointer)

    async def paused(commit: CommitLoop) -> None:
        steps.append("pause")
        await pause(commit)

    monkeypatch.setattr(Checkpointer, "capture_step", captured)
    monkeypatch.setattr(CommitLoop, "pause", paused)
    driven(lab, lambda keeper: keeper.checkpoints.run())
    assert steps.index("capture") < steps.index("pause")
    assert steps.count("capture") < 100
    lab.kill()


@pytest.mark.parametrize(
    ("is_on_its_way", "more", "is_frozen"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_runs_come_to_rest_that_the_journal_below_has_and_that_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_its_way: bool, more: int, is_frozen: bool
) -> None:
    """Others go on growing: what is written to them needs no new run."""
    lab = Lab(tmp_path)
    lab.put("t", durability="fsync")
    frozen: list[Run] = []
    freeze = Run.freeze

    def noted(run: Run) -> None:
        frozen.append(run)
        freeze(run)

    monkeypatch.setattr(Run, "freeze", noted)
    append(lab.engine, "t", b'{"records":[{"data":1}]}', lambda _: None, pytest.fail)
    if not is_on_its_way:
        lab.engine.queue.sync_now()
    (run,) = lab.topic("t").runs
    assert run.start_position > 0
    driven(lab, lambda keeper: keeper.checkpoints._commit_runs(run.start_position + more))
    assert frozen == [run] * is_frozen
    assert not run.frozen
    lab.kill()


def test_one_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    driven(lab, lambda keeper: keeper.stop())
    lab.kill()


def test_appends_are_committed_after_a_pause_in_which_all_others_were_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.put("t")
    refused: list[str] = []

    async def main() -> Appended:
        loop = asyncio.get_running_loop()
        commit = CommitLoop(lab.engine, loop)
        await commit.pause()
        lab.engine.append(ByHand("t", b"{}", pytest.fail, lambda error: refused.append(error.code)))
        await asyncio.sleep(0.01)
        lab.engine.queue.assign_pending()
        commit.resume()
        await asyncio.sleep(0.01)
        appended: asyncio.Future[Appended] = loop.create_future()
        body = b'{"records":[{"data":1}]}'
        lab.engine.append(ByHand("t", body, appended.set_result, appended.set_exception))
        try:
            return await asyncio.wait_for(appended, 5)
        finally:
            commit.close()

    assert asyncio.run(main()).first_seq == 1
    assert refused == ["invalid_request"]
    lab.kill()


def test_a_violation_in_a_turn_of_upkeep_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, is_met = Lab(tmp_path), asyncio.Event()

    def contradict(_: int) -> None:
        is_met.set()
        raise InvariantViolated("a topic contradicts itself")

    async def work(keeper: Upkeep) -> None:
        keeper.start()
        await is_met.wait()
        await asyncio.sleep(0)
        await keeper.stop()

    monkeypatch.setattr(upkeep, "TICK_S", 0.01)
    monkeypatch.setattr(lab.engine.clock_mark, "extend", contradict)
    driven(lab, work)
    assert lab.engine.writes_off is WritesOff.STORAGE_FAILED
    lab.kill()
