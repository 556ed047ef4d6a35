"""A slow sync waits for the writers who were just answered; a fast one does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.log.write.test_commit_loop import append, driven, put
from topics.log.engine import Engine
from topics.log.write import commit_loop
from topics.log.write.commit_loop import MAX_WAIT_S, SLOW_SYNC_S, WAIT_SHARE, CommitLoop, Company
from topics.values.config import TopicConfig

SLOW_S = 4 * SLOW_SYNC_S


def used_to(sync_s: float) -> Company:
    company = Company()
    for _ in range(100):
        company.answered(0.0, sync_s, 1, 0)
    return company


def test_a_fast_sync_waits_for_nobody() -> None:
    company = used_to(SLOW_SYNC_S * 0.4)
    company.answered(10.0, SLOW_SYNC_S * 0.4, 64, 0)
    assert not company.is_expected
    assert company.wait_s(10.0, 1) == 0.0


def test_a_slow_one_waits_until_as_many_have_come_again() -> None:
    company = used_to(SLOW_S)
    company.answered(10.0, SLOW_S, 32, 30)
    assert company.is_expected
    assert company.wait_s(10.0, 30) == pytest.approx(SLOW_S * WAIT_SHARE, rel=0.01)
    assert company.wait_s(10.0, 61) > 0
    assert company.wait_s(10.0, 62) == 0.0
    # It is over then, whoever comes next.
    assert company.wait_s(10.0, 1) == 0.0


def test_it_does_not_wait_for_long() -> None:
    company = used_to(SLOW_S)
    company.answered(10.0, SLOW_S, 32, 0)
    assert 0 < company.wait_s(10.0 + SLOW_S * WAIT_SHARE / 2, 3) < SLOW_S * WAIT_SHARE
    assert company.wait_s(10.0 + SLOW_S * WAIT_SHARE, 3) == 0.0
    slower = used_to(10.0)
    slower.answered(10.0, 10.0, 32, 0)
    assert slower.wait_s(10.0, 3) == pytest.approx(MAX_WAIT_S, rel=0.01)


def test_a_lone_writer_never_waits() -> None:
    company = used_to(SLOW_S)
    company.answered(10.0, SLOW_S, 1, 0)
    assert not company.is_expected


def test_one_sync_that_took_long_is_not_what_is_usual() -> None:
    company = used_to(SLOW_SYNC_S / 10)
    company.answered(10.0, SLOW_SYNC_S * 4, 64, 0)
    assert not company.is_expected
    for _ in range(10):
        company.answered(10.0, SLOW_SYNC_S * 4, 64, 0)
    assert company.is_expected


def test_the_next_sync_begins_with_the_last_of_those_who_were_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_loop, "MAX_WAIT_S", 600.0)
    monkeypatch.setattr(commit_loop, "SYNC_WEIGHT", 0.0)

    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        commit._company.usual_s = 1200.0  # whatever this disk is like
        await asyncio.gather(*[append(engine, "t") for _ in range(3)])
        syncs = engine.counters.fsyncs
        writes = [append(engine, "t"), append(engine, "t")]
        while engine.queue.writers_waiting < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert engine.counters.fsyncs == syncs
        assert not any(write.done() for write in writes)
        await asyncio.gather(*writes, append(engine, "t"))
        assert engine.counters.fsyncs == syncs + 1

    driven(tmp_path, scenario)


def test_who_is_as_quick_as_that_is_not_waited_for() -> None:
    company = Company()
    company.usual_s = SLOW_SYNC_S
    company.answered(10.0, SLOW_SYNC_S, 64, 0)
    assert company.usual_s == SLOW_SYNC_S
    assert not company.is_expected


def test_nobody_is_expected_when_the_time_is_over() -> None:
    company = used_to(10.0)
    company.answered(10.0, 10.0, 32, 0)
    assert company.is_expected
    assert company.wait_s(company._until, 3) == 0.0
    assert not company.is_expected
