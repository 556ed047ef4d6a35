"""When the background forwards: at once, then with rests; again and again while a destination is full."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import short_of_memory
from tests.support.appending import append
from topics.core.errors import InvariantViolated, WritesOff
from topics.flow.load_shedder import LAG_MS, Level, LoadShedder
from topics.flow.routers import background, registry
from topics.flow.routers.background import RouterPass
from topics.log.topic import Topic
from topics.log.write.commit_loop import CommitLoop


class Timer:
    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class HandLoop:
    """An event loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, action: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, action))
        return self.timers[-1]

    @property
    def waiting(self) -> list[Timer]:
        self.timers = [timer for timer in self.timers if timer.action is not None]
        return self.timers

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.waiting if timer.at <= self.now]:
            action, timer.action = timer.action, None
            if action is not None:
                action()


class HandBrake:
    """Holds for so long, however often it is asked."""

    left_s = 0.0
    groups = 0

    def held_s(self) -> float:
        return self.left_s

    def hold_next(self) -> None:
        self.groups += 1

    def give_up(self, cause: BaseException) -> None:
        raise cause


class Setup:
    def __init__(self, directory: Path) -> None:
        self.lab = RouterLab(directory)
        self.lab.pulls = False
        self.loop = HandLoop()
        self.load_shedder = LoadShedder()
        self.brake = HandBrake()
        self.passing = RouterPass(self.lab.routers, self.loop, self.load_shedder, self.brake)  # type: ignore[arg-type]
        self.lab.route("r", "a", "b")

    def head(self) -> int:
        return self.lab.topic("b").head


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    # A turn ends when the work does, however slow the machine is.
    monkeypatch.setattr(background, "TURN_S", 60.0)
    return Setup(tmp_path)


def test_a_lone_record_is_copied_in_the_next_turn(setup: Setup) -> None:
    assert not setup.loop.waiting
    setup.lab.write("a", 1)
    assert setup.head() == 0
    setup.loop.advance(0)
    assert setup.head() == 1
    assert not setup.loop.waiting


def work_takes(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn, by the clock of the pass."""
    turns = itertools.count()
    monkeypatch.setattr(background, "thread_time", lambda: next(turns) * seconds)


def test_records_behind_it_gather_while_the_pass_rests(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    work_takes(0.001, monkeypatch)
    setup.lab.write("a", 1)
    setup.loop.advance(0)
    for number in range(5):
        setup.lab.write("a", number)
    [timer] = setup.loop.waiting
    assert setup.loop.now < timer.at <= setup.loop.now + background.MAX_REST_S
    setup.loop.advance(0)
    assert setup.head() == 1
    setup.loop.advance(background.MAX_REST_S)
    assert setup.head() == 6


def test_a_chain_is_followed_to_its_end_in_one_turn(setup: Setup) -> None:
    setup.lab.route("s", "b", "c")
    setup.lab.route("t", "c", "d")
    setup.lab.write("a", 1)
    setup.loop.advance(0)
    assert setup.lab.topic("d").head == 1


def test_a_full_destination_is_tried_again(setup: Setup) -> None:
    lab, loop = setup.lab, setup.loop
    lab.put("b", discard="reject", cap_records=1)
    lab.write("a", 1, 2)
    loop.advance(0)
    assert setup.head() == 1
    assert loop.waiting
    loop.advance(background.MAX_REST_S)
    assert setup.head() == 1
    lab.delete("b", before=2)
    loop.advance(background.MAX_REST_S)
    assert setup.head() == 2
    assert not loop.waiting


def test_under_pressure_copies_wait(setup: Setup) -> None:
    setup.load_shedder.lag_ms = LAG_MS[Level.DEFER]
    setup.lab.write("a", 1)
    setup.loop.advance(0)
    assert setup.head() == 0
    setup.loop.advance(background.DEFER_S)
    assert setup.head() == 1


def test_a_checkpoint_never_misses_what_a_reader_wrote_while_it_waited(tmp_path: Path) -> None:
    """Copies into a synced destination are frames that wait for a sync, and may come behind the barrier."""
    lab = RouterLab(tmp_path)
    lab.put("a", durability="fsync")
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    queue = lab.engine.queue

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        commit = CommitLoop(lab.engine, loop)

        def forward() -> None:
            assert lab.routers.step(lab.topic("a"))
            queue.flush()

        def written(_: Any) -> None:
            loop.call_soon(forward)

        append(lab.engine, "a", b'{"records":[{"data":1}]}', written, pytest.fail)
        queue.flush()
        await commit.pause()
        assert not queue.effects.unsynced
        assert lab.topic("b").head == 1
        commit.resume()
        commit.close()

    asyncio.run(scenario())
    lab.kill()


@pytest.mark.parametrize("after", [0, 1])
def test_copies_that_there_is_no_memory_for_end_writing_and_come_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    lab = RouterLab(tmp_path)
    lab.put("s")
    lab.route("one", "s", "a")
    lab.route("two", "s", "b")
    lab.write("s", 1, 2)
    with monkeypatch.context() as patch:
        short_of_memory(patch, after=after)
        lab.background()
    failure = lab.engine.queue.refusals.failure
    assert failure is not None
    assert "MemoryError" in failure.message
    assert (lab.seqs("a"), lab.seqs("b"), lab.seqs("s")) == ([], [], [1, 2])
    lab.restart()
    assert (lab.seqs("a"), lab.seqs("b")) == ([1, 2], [1, 2])
    lab.kill()


def test_copies_wait_for_the_brake_once_and_it_hears_of_them(setup: Setup) -> None:
    setup.brake.left_s = 0.5
    for copied in (1, 2):
        setup.lab.write("a", copied)
        setup.loop.advance(0)
        setup.loop.advance(0.4)
        assert (setup.head(), setup.brake.groups) == (copied - 1, copied - 1)
        setup.loop.advance(0.1)  # by now, writers have made it hold anew
        assert (setup.head(), setup.brake.groups) == (copied, copied)
        setup.loop.advance(1.0)


@pytest.mark.parametrize(("owed", "is_copied"), [(5, True), (6, False)])
def test_a_reader_brings_no_backlog_into_memory_that_is_full(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, owed: int, is_copied: bool
) -> None:
    monkeypatch.setattr(registry, "STEP_COPIES", 5)
    monkeypatch.setattr(registry, "STEP_ROWS_MIN", 1)
    routers, dest = setup.lab.routers, setup.lab.topic("b")
    setup.lab.write("a", *range(owed))
    routers.is_braked = lambda: True
    routers.pull_for_reader(setup.lab.topic("a"))  # to which no router leads
    routers.pull_for_reader(dest)
    assert setup.head() == (owed if is_copied else 0)
    routers.is_braked = lambda: False
    routers.pull_for_reader(dest)
    assert setup.head() == owed


@pytest.mark.parametrize("place", ["source", "destination"])
def test_a_violation_in_a_step_of_the_background_ends_writing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A step that contradicts itself is not repeated, and no reader waits for it."""
    lab, gone = setup.lab, list[int]()
    lab.write("a", 1)
    setup.brake.give_up = lab.engine.queue.give_up  # type: ignore[method-assign]
    lab.routers.readers.add([*lab.routers.table.into(lab.topic("b"))], lambda: gone.append(1))

    def contradict(*_: Any, **__: Any) -> None:
        raise InvariantViolated("seq 9 cannot follow seq 0")

    if place == "source":
        monkeypatch.setattr(registry, "read_window", contradict)
    else:
        monkeypatch.setattr(Topic, "append", contradict)
    setup.loop.advance(0)
    assert lab.engine.writes_off is WritesOff.STORAGE_FAILED
    assert gone == [1]
    assert (lab.topic("b").assigned, lab.topic("b").head) == (0, 0)
    monkeypatch.undo()
    lab.restart()
    lab.pulls = True
    assert lab.seqs("b") == [1]
