"""The commit loop: groups, order, failed syncs, and the barrier checkpoints use."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.appending import ByHand, body_of
from topics.core.clock import ManualClock
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.core.settings import Settings
from topics.log import read_page
from topics.log.engine import Engine
from topics.log.lifecycle import put_topic
from topics.log.recover.recovery import Recovery
from topics.log.write import commit_loop
from topics.log.write.commit_loop import FEW_REQUESTS, CommitLoop
from topics.storage.filesystem import Filesystem
from topics.storage.kernel_syncs import KernelSyncs


def open_engine(path: Path, fs: Filesystem | None = None) -> Engine:
    engine = Engine(Settings(data_dir=str(path)), fs or Filesystem(), ManualClock())
    Recovery(engine).run()
    return engine


class Busy:
    """A pacer that has readers to protect."""

    pacing = True


def driven(
    path: Path,
    scenario: Callable[[Engine, CommitLoop], Any],
    *,
    kernel: bool = True,
    fs: Filesystem | None = None,
    aside: bool = False,
) -> Any:
    """Run a scenario with the loop attached, through the kernel's sync or through a thread."""

    async def main() -> Any:
        engine = open_engine(path, fs)
        commit = CommitLoop(engine, asyncio.get_running_loop(), pacing=Busy() if aside else None)
        if not kernel:
            commit._kernel = None
        try:
            return await scenario(engine, commit)
        finally:
            commit.close()
            engine.close(clean=False)

    return asyncio.run(main())


def append(engine: Engine, name: str) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    engine.append(ByHand(name, body_of(1), future.set_result, future.set_exception))
    return future


async def put(engine: Engine, name: str, config: TopicConfig) -> None:
    future = asyncio.get_running_loop().create_future()
    put_topic(engine, name, config, future.set_result, future.set_exception)
    await future


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("kernel", [True, False])
def test_one_write_and_one_sync_serve_all_who_wait(tmp_path: Path, kernel: bool, aside: bool) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        batches, syncs = engine.counters.batches, engine.counters.fsyncs
        results = await asyncio.gather(*[append(engine, "t") for _ in range(50)])
        assert [op.first_seq for op in results] == list(range(1, 51))
        assert all(op.fsync_ms > 0 for op in results)
        assert engine.counters.batches == batches + 1
        assert engine.counters.fsyncs == syncs + 1

    driven(tmp_path, scenario, kernel=kernel, aside=aside)


def test_a_synced_record_is_invisible_until_its_sync(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        waiting = append(engine, "t")
        engine.queue.flush()
        topic = engine.require("t")
        assert topic.assigned == 1
        assert topic.head == 0
        await waiting
        assert topic.head == 1

    driven(tmp_path, scenario)


def test_after_a_change_of_class_nobody_overtakes(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        order: list[int] = []
        first, second = append(engine, "t"), None
        topic = engine.require("t")
        topic.config = TopicConfig(durability="disk")
        second = append(engine, "t")
        for future in (first, second):
            future.add_done_callback(lambda done: order.append(done.result().first_seq))
        await asyncio.gather(first, second)
        await asyncio.sleep(0)
        assert order == [1, 2]

    driven(tmp_path, scenario)


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        assert (await append(engine, "t")).first_seq == 1

        def refuse() -> None:
            raise OSError(5, "input/output error")

        monkeypatch.setattr(engine.journal.current_file().__class__, "sync", lambda self: refuse())
        doomed = [append(engine, "t"), append(engine, "t")]
        for future in doomed:
            with pytest.raises(ApiError, match="until restart"):
                await future
        topic = engine.require("t")
        assert (topic.head, topic.assigned, topic.live_count) == (1, 1, 1)
        assert engine.read_only
        with pytest.raises(ApiError, match="until restart"):
            await append(engine, "t")
        assert read_page(engine, topic, 0, 10, 1000).count == 1

    driven(tmp_path, scenario, kernel=False)


def test_the_barrier_waits_for_everything_in_the_journal(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync", durable=True))
        before = append(engine, "t")
        engine.queue.flush()
        await commit.pause()
        assert before.done()
        behind = append(engine, "t")
        await asyncio.sleep(0.02)
        assert not behind.done()
        assert engine.require("t").head == 1
        commit.resume()
        await behind
        assert engine.require("t").head == 2

    driven(tmp_path, scenario)


@pytest.mark.parametrize(("requests", "batches"), [(FEW_REQUESTS, 2), (FEW_REQUESTS + 1, 1)])
def test_after_a_large_group_the_next_one_gathers_a_turn_longer(
    tmp_path: Path, requests: int, batches: int
) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await asyncio.gather(*[append(engine, "t") for _ in range(requests)])
        before = engine.counters.batches
        first = append(engine, "t")
        await asyncio.sleep(0)
        await asyncio.gather(first, append(engine, "t"))
        assert engine.counters.batches == before + batches

    driven(tmp_path, scenario)


def test_a_kernel_without_asynchronous_syncs_is_served_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "of another kind")

    async def scenario(engine: Engine, commit: CommitLoop) -> Any:
        await put(engine, "t", TopicConfig(durability="fsync"))
        return await append(engine, "t")

    assert driven(tmp_path, scenario)


def test_a_sync_that_cannot_be_begun_is_done_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: KernelSyncs, fd: int, done: Callable[[BaseException | None], None]) -> None:
        raise OSError(errno.EAGAIN, "too many")

    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        await put(engine, "t", TopicConfig(durability="fsync"))
        assert commit._kernel is not None
        monkeypatch.setattr(KernelSyncs, "start", refuse)
        for _ in range(2):
            await asyncio.wait_for(append(engine, "t"), 10)
        assert commit._kernel is None

    driven(tmp_path, scenario)


class Clockwork:
    """A loop that notes what is to be done, and does nothing."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def time(self) -> float:
        return 100.0

    def call_later(self, delay: float, _: object) -> None:
        self.delays.append(delay)

    def call_soon(self, *_: object) -> None:
        self.delays.append(0.0)


class Steady:
    commit_window_s = 0.0


@pytest.mark.parametrize(
    ("window_s", "held_until", "delay"),
    [(0.0, 0.0, 0.0), (3.0, 0.0, 3.0), (0.0, 102.0, 2.0), (3.0, 102.0, 3.0), (1.0, 102.0, 2.0)],
)
def test_a_group_gathers_as_long_as_it_may_and_as_long_as_it_must(
    tmp_path: Path, window_s: float, held_until: float, delay: float
) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        clockwork, steady = Clockwork(), Steady()
        steady.commit_window_s, commit._held_until = window_s, held_until
        commit._loop, commit._pressure = clockwork, steady  # type: ignore[assignment]
        commit._schedule()
        assert clockwork.delays == [delay]
        commit._kernel = None

    driven(tmp_path, scenario, kernel=False)


def test_the_brake_is_let_go_of_when_its_time_is_over(tmp_path: Path) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        commit._loop = Clockwork()  # type: ignore[assignment]
        engine.store.unsealed.bytes = 1 << 40
        assert commit.brake.is_on
        for held_until, held_s in ((0.0, 0.0), (101.0, 1.0), (100.0, 0.0)):
            commit._held_until = held_until
            assert commit.held_s() == held_s

    driven(tmp_path, scenario, kernel=False)


def test_unsynced_journal_is_pushed_out_from_a_certain_size_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(engine: Engine, commit: CommitLoop) -> None:
        journal = engine.journal
        await append(engine, "t")
        for most, is_synced in ((1 << 20, False), (0, True)):
            monkeypatch.setattr(commit_loop, "TRICKLE_BYTES", most)
            await append(engine, "t")
            for _ in range(100):
                await asyncio.sleep(0.001 if journal.synced < journal.position else 0)
            assert (journal.synced == journal.position) == is_synced

    driven(tmp_path, scenario)
