"""Who reads a destination that is far behind waits for its copies, and for no others, and never in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab
from topics.flow.routers import registry


class Waiting:
    """A reader of "b", to which records of "a" are copied in steps of five."""

    def __init__(self, directory: Path) -> None:
        self.lab = RouterLab(directory)
        self.lab.pulls = False
        self.lab.route("r", "a", "b")
        self.routers = self.lab.routers
        self.routers.is_braked = lambda: True
        self.woken = 0
        self.routers.wake = self._wake
        # How many there were each time that it was let go.
        self.found: list[int] = []

    def _wake(self) -> None:
        self.woken += 1

    def come(self) -> bool:
        topic = self.lab.topic("b")
        return self.routers.keep_reader(topic, lambda: self.found.append(topic.head))

    def step(self) -> None:
        self.routers.forward(lambda: True)
        self.routers.readers.release_served()


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(registry, "STEP_COPIES", 5)
    monkeypatch.setattr(registry, "STEP_ROWS_MIN", 1)
    waiting = Waiting(tmp_path)
    yield waiting
    waiting.lab.kill()


@pytest.mark.parametrize(("owed", "waits"), [(0, False), (5, False), (6, True)])
def test_only_a_backlog_is_waited_for(waiting: Waiting, owed: int, waits: bool) -> None:
    waiting.lab.write("a", *range(owed)) if owed else None
    before = waiting.woken
    assert waiting.come() is waits
    assert waiting.woken == before + waits
    assert bool(waiting.routers.readers) is waits


@pytest.mark.parametrize(("owed", "waits"), [(160, False), (161, True)])
def test_with_room_in_memory_more_is_copied_in_passing(waiting: Waiting, owed: int, waits: bool) -> None:
    waiting.routers.is_braked = lambda: False
    waiting.lab.write("a", *range(owed))
    assert waiting.come() is waits
    waiting.routers.pull_for_reader(waiting.lab.topic("b"))
    assert waiting.lab.topic("b").head == (0 if waits else owed)


def test_a_reader_gets_what_was_there_when_it_came(waiting: Waiting) -> None:
    waiting.lab.write("a", *range(12))
    assert waiting.come()
    waiting.step()
    waiting.lab.write("a", *range(8))
    assert waiting.come()
    waiting.step()
    assert waiting.found == []
    waiting.step()
    assert waiting.found == [15]
    waiting.step()
    assert waiting.found == [15, 20]
    assert not waiting.routers.readers


def test_nobody_waits_for_a_destination_that_is_full(waiting: Waiting) -> None:
    waiting.lab.put("b", cap_records=7, discard="reject")
    waiting.lab.write("a", *range(22))
    assert waiting.come()
    waiting.step()
    assert waiting.found == []
    waiting.step()
    assert waiting.found == [7]
    assert not waiting.come()
    # Its readers look whether there is room again.
    waiting.lab.delete("b", before=8)
    assert not waiting.come()
    waiting.routers.pull_for_reader(waiting.lab.topic("b"))
    assert waiting.lab.topic("b").head > 7


def test_a_full_destination_is_nothing_to_readers_of_another(waiting: Waiting) -> None:
    waiting.lab.route("r2", "a", "c")
    waiting.lab.put("c", cap_records=3, discard="reject")
    waiting.lab.write("a", *range(5))
    for _ in range(9):
        waiting.step()
    assert waiting.routers.stuck
    waiting.lab.write("a", *range(12))
    assert waiting.come()
    for _ in range(20):
        waiting.step()
    assert waiting.found == [17]
