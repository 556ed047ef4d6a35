"""Groups that are written on a thread: the loop goes on, and nothing overtakes what is under way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.log.write.test_commit_loop import append, driven, put
from tests.support.disk import HookedDisk
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.log import read_page
from topics.log.engine import Engine
from topics.log.write.commit_loop import CommitLoop
from topics.log.write.commit_queue import GroupWrite
from topics.storage.frame import FrameDraft, Kind

FSYNC = TopicConfig(durability="fsync", durable=True)


class Gate:
    """Journal writes wait here while it is closed, and fail while it is broken."""

    def __init__(self) -> None:
        self.opened = Event()
        self.opened.set()
        self.writes = 0
        self.broken = False
        # Syncs fail as soon as this is set.
        self.failing_sync: Event | None = None

    def before(self, operation: str, path: Path) -> None:
        if path.suffix != ".journal":
            return
        if operation == "sync" and self.failing_sync is not None:
            self.failing_sync.wait(10)
            raise OSError(errno.EIO, "the disk refuses")
        if operation != "write":
            return
        self.writes += 1
        self.opened.wait(10)
        if self.broken:
            raise OSError(errno.EIO, "the disk refuses")


def gated(path: Path, scenario: Callable[[Engine, CommitLoop, Gate], Awaitable[None]]) -> None:
    """With a gate that opens for a caller that cannot go on before the write is over."""
    gate = Gate()
    wait = GroupWrite.wait

    def open_and_wait(write: GroupWrite) -> None:
        gate.opened.set()
        wait(write)

    async def run(engine: Engine, commit: CommitLoop) -> None:
        await scenario(engine, commit, gate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWrite, "wait", open_and_wait)
        driven(path, run, kernel=False, fs=HookedDisk(gate.before), aside=True)


async def under_way(engine: Engine, gate: Gate, name: str = "t") -> asyncio.Future[Any]:
    """An append whose write has begun and does not end."""
    gate.opened.clear()
    before = gate.writes
    future = append(engine, name)
    await turns_until(lambda: gate.writes > before)
    return future


async def turns_until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


def test_the_loop_goes_on_and_the_next_group_gathers(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        assert (await append(engine, "t")).first_seq == 1
        topic = engine.require("t")
        first = await under_way(engine, gate)
        second, third = append(engine, "t"), append(engine, "t")
        await asyncio.sleep(0.01)
        assert not any(future.done() for future in (first, second, third))
        assert (topic.head, engine.queue.depth) == (1, 3)
        assert read_page(engine, topic, 0, 10, 1000).count == 1
        batches = engine.counters.batches
        gate.opened.set()
        assert [op.first_seq for op in await asyncio.gather(first, second, third)] == [2, 3, 4]
        assert engine.counters.batches == batches + 2
        assert read_page(engine, topic, 0, 10, 1000).count == 4

    gated(tmp_path, scenario)


def test_whoever_flushes_waits_for_it(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await append(engine, "t")
        first = await under_way(engine, gate)
        second = append(engine, "t")
        engine.queue.flush()
        assert (first.result().first_seq, second.result().first_seq) == (2, 3)
        assert engine.require("t").head == 3

    gated(tmp_path, scenario)


def test_what_an_operation_brings_about_is_written_behind_it(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await append(engine, "t")
        first = await under_way(engine, gate)
        before = engine.journal.position
        engine.queue.note([FrameDraft(Kind.CLOCK, b"x" * 10)])
        # In the journal, both, and the group has still to take effect.
        assert engine.journal.position > before + 10
        assert engine.require("t").head == 1
        assert (await first).first_seq == 2
        assert engine.queue.refusals.failure is None

    gated(tmp_path, scenario)


def test_the_barrier_waits_for_it(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await put(engine, "t", FSYNC)
        first = await under_way(engine, gate)
        await commit.pause()
        assert first.done()
        behind = append(engine, "t")
        await asyncio.sleep(0.01)
        assert not behind.done()
        commit.resume()
        assert (await behind).first_seq == 2

    gated(tmp_path, scenario)


def test_a_refused_write_is_final(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await append(engine, "t")
        first = await under_way(engine, gate)
        behind = append(engine, "t")
        gate.broken = True
        gate.opened.set()
        for future in (first, behind):
            with pytest.raises(ApiError, match="until restart"):
                await future
        topic = engine.require("t")
        assert (topic.head, topic.assigned, topic.live_count) == (1, 1, 1)
        assert engine.read_only
        assert read_page(engine, topic, 0, 10, 1000).count == 1

    gated(tmp_path, scenario)


def test_a_failed_sync_takes_it_along(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await put(engine, "t", FSYNC)
        await append(engine, "u")
        gate.failing_sync = synced = Event()
        writes = gate.writes
        doomed = append(engine, "t")
        await turns_until(lambda: gate.writes > writes and not engine.queue.is_writing)
        other = await under_way(engine, gate, "u")
        synced.set()
        for future in (doomed, other):
            with pytest.raises(ApiError, match="until restart"):
                await future
        assert (engine.require("t").head, engine.require("u").head) == (0, 1)

    gated(tmp_path, scenario)


def test_closing_waits_for_it(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop, gate: Gate) -> None:
        await append(engine, "t")
        first = await under_way(engine, gate)
        commit.close()
        assert (await first).first_seq == 2

    gated(tmp_path, scenario)
