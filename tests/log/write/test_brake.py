"""Appends that outrun sealing wait in proportion; none is refused, and reads do not wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.log.write.test_commit_loop import append, driven
from topics.log import read_page
from topics.log.engine import Engine
from topics.log.run import Unsealed
from topics.log.write import commit_loop
from topics.log.write.commit_loop import FULL_BYTES_PER_S, MAX_PAUSE_S, MIN_FREE_BYTES, Brake, CommitLoop

BUDGET = 4 * MIN_FREE_BYTES
FREE = BUDGET * 3 // 4


def holding(size: int, budget: int = BUDGET, *, grown: int = 0) -> Brake:
    """A brake when the journal alone has so many bytes, some of them new."""
    unsealed = Unsealed(10, 10)
    unsealed.bytes = size - grown
    brake = Brake(unsealed, budget)
    unsealed.bytes = size
    return brake


def test_no_append_waits_while_a_quarter_of_the_budget_is_free() -> None:
    assert not holding(FREE).is_on
    assert holding(FREE, grown=FREE).pause_s() == 0.0
    assert holding(FREE + 1).is_on


def test_the_pause_follows_what_came_and_what_has_piled_up() -> None:
    quarter = FULL_BYTES_PER_S // 4
    assert holding(BUDGET, grown=quarter).pause_s() == pytest.approx(0.25)
    assert holding(BUDGET, grown=2 * quarter).pause_s() == pytest.approx(0.5)
    more = BUDGET + BUDGET // 4
    assert holding(more, grown=quarter).pause_s() == pytest.approx(0.5)
    assert holding(more, grown=more).pause_s() == MAX_PAUSE_S


@pytest.mark.parametrize("sealed_per_s", [FULL_BYTES_PER_S // 2, FULL_BYTES_PER_S, 4 * FULL_BYTES_PER_S])
def test_memory_stays_near_its_budget_however_fast_it_is_filled(sealed_per_s: int) -> None:
    """Groups of a megabyte that come at once, and become eleven in memory: a source and ten copies."""
    unsealed = Unsealed(10, 10)
    brake = Brake(unsealed, BUDGET)
    peak, left = 0, 10 * BUDGET
    while left > 0:
        unsealed.bytes += 11 << 20
        left -= 11 << 20
        peak = max(peak, unsealed.bytes)
        pause_s = 0.001 + brake.pause_s()
        unsealed.shrank(min(int(sealed_per_s * pause_s), unsealed.bytes))
    assert peak <= BUDGET * 1.25


def test_a_group_waits_behind_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "FULL_BYTES_PER_S", 1)
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
        assert read_page(engine, engine.require("t"), 0, 10, 1 << 20).count == 2  # reads go on
        assert [op.first_seq for op in await asyncio.gather(*waiting)] == [3, 4, 5]
        assert engine.counters.batches == batches + 1  # they were written together
        late = append(engine, "t")
        await asyncio.sleep(0)
        engine.store.unsealed.bytes -= piled_up
        await commit.drain()  # a server that stops does not wait for its brake
        assert late.done()

    driven(tmp_path, scenario)
