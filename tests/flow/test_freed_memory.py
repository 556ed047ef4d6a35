"""When memory goes back to the system: some time after the last burst; under a steady load, now and then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.flow.freed_memory import LONGEST_S, MUCH_BYTES, REST_S, FreedMemory

START_S = 100.0


class Memory:
    """The books of an engine, filled in by hand."""

    def __init__(self, path: Path) -> None:
        self.lab = Lab(path)
        self.lab.engine.totals.bytes = 10 * MUCH_BYTES
        self._freed = FreedMemory(self.lab.engine, START_S)

    def comes(self, size: int) -> None:
        unsealed = self.lab.engine.store.unsealed
        unsealed.bytes += size
        # Most of it is sealed soon.
        unsealed.shrank(size // 2)
        self.lab.engine.totals.bytes += size

    def goes(self, size: int) -> None:
        self.lab.engine.totals.bytes -= size

    def is_due(self, after_s: float) -> bool:
        return self._freed.is_due(START_S + after_s)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(tmp_path)
    yield memory
    memory.lab.kill()


@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("way", ["comes", "goes"])
def test_some_time_after_much_has_come_or_gone(memory: Memory, way: str, less: int) -> None:
    getattr(memory, way)(MUCH_BYTES - less)
    assert not memory.is_due(0)
    assert not memory.is_due(REST_S - 0.1)
    assert memory.is_due(REST_S) is not less
    assert not memory.is_due(1000)


def test_what_went_is_counted_from_the_most_there_was(memory: Memory) -> None:
    memory.comes(MUCH_BYTES - 1)
    assert not memory.is_due(0)
    memory.goes(MUCH_BYTES // 2)
    assert not memory.is_due(1)
    assert memory.is_due(1 + REST_S)


def test_while_much_comes_it_is_kept_for_that_but_not_for_ever(memory: Memory) -> None:
    due = []
    for second in range(130):
        memory.comes(MUCH_BYTES)
        if memory.is_due(second):
            due.append(second)
    assert due == [LONGEST_S, 2 * LONGEST_S + 1]


def test_when_little_comes_it_is_not_wanted(memory: Memory) -> None:
    memory.comes(MUCH_BYTES)
    due = []
    for second in range(30):
        if memory.is_due(second):
            due.append(second)
        memory.comes(MUCH_BYTES // 100)
    assert due == [REST_S]
