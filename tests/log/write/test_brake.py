"""Writers who outrun sealing wait in proportion; nothing is refused, and reads do not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.log.write.test_commit_loop import append, driven
from topics.log.engine import Engine
from topics.log.seal.unsealed import Unsealed
from topics.log.write import commit_loop
from topics.log.write.commit_loop import BYTES_PER_S_AT_TWICE, MAX_PAUSE_S, MIN_FREE_BYTES, Brake, CommitLoop

BUDGET = 4 * MIN_FREE_BYTES


def holding(size: float, budget: int = BUDGET) -> Brake:
    unsealed = Unsealed(10, 10)
    unsealed.bytes = int(size)
    return Brake(unsealed, budget)


def test_within_the_budget_nobody_waits() -> None:
    assert not holding(BUDGET).is_on
    assert holding(BUDGET).pause_s(1 << 30) == 0.0
    assert holding(0).pause_s(1 << 30) == 0.0


def test_a_small_budget_leaves_room_for_a_pass_of_sealing() -> None:
    assert not holding(MIN_FREE_BYTES, budget=1).is_on
    assert holding(MIN_FREE_BYTES + 1, budget=1).is_on


def test_the_pause_follows_what_was_written_and_what_has_piled_up() -> None:
    twice, more = holding(2 * BUDGET), holding(3 * BUDGET)
    quarter = BYTES_PER_S_AT_TWICE // 4
    assert twice.pause_s(quarter) == pytest.approx(0.25)
    assert twice.pause_s(2 * quarter) == pytest.approx(0.5)
    assert more.pause_s(quarter) == pytest.approx(0.5)
    assert more.pause_s(1 << 40) == MAX_PAUSE_S


def test_a_group_waits_behind_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "BYTES_PER_S_AT_TWICE", 1)
    monkeypatch.setattr(commit_loop, "MAX_PAUSE_S", 0.2)

    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await append(engine, "t")
        piled_up = 10 * MIN_FREE_BYTES * 10
        engine.store.unsealed.bytes += piled_up
        await append(engine, "t")  # the first of them is written at once, and holds back what follows
        batches = engine.counters.batches
        waiting = [append(engine, "t") for _ in range(3)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(write.done() for write in waiting)
        assert engine.read(engine.require("t"), 0, 10, 1 << 20).count == 2  # reads go on
        assert [op.first_seq for op in await asyncio.gather(*waiting)] == [3, 4, 5]
        assert engine.counters.batches == batches + 1  # they were written together
        late = append(engine, "t")
        await asyncio.sleep(0)
        engine.store.unsealed.bytes -= piled_up
        await commit.drain()  # a server that stops does not wait for its brake
        assert late.done()

    driven(tmp_path, scenario)
