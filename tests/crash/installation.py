"""A server without its sockets: the engine and everything layered on it, recovered from a simulated disk."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.crash.disk import SimulatedDisk
from tests.flow.open_admission import open_admission
from topics.core.clock import ManualClock
from topics.core.settings import Settings
from topics.flow.checkpoints import ColdTier
from topics.flow.cursors import Cursors
from topics.flow.queues.registry import Queues
from topics.flow.routers.recovery import RouterRecovery
from topics.flow.routers.registry import Routers
from topics.flow.stages.stages import Stages
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery
from topics.log.seal.checkpoint import Checkpointer
from topics.ops.directory import sealed_runs
from topics.storage.directories import Directories
from topics.storage.home import Home

SETTINGS: dict[str, Any] = {
    "data_dir": "/data",
    "cold_dir": "/cold",
    "segment_max_events": 6,
    "hot_bytes": 1,
    "hot_retain_segments": 1,
    # A few removals' worth.
    "disk_reserve_bytes": 64 * 1024,
}


class Installation:
    """The engine with everything that is layered on it, recovered from a disk."""

    def __init__(
        self,
        disk: SimulatedDisk,
        clock: ManualClock,
        on_set_back: Callable[[Engine, int, int], None] = lambda engine, shown_ms, now_ms: None,
        **settings: Any,
    ) -> None:
        """`on_set_back`: the engine follows a clock that was set back, from what was shown to now.

        Also when it reads in its journal that it had done so.
        """
        restarts = disk.restarts
        wanted = Settings(**(SETTINGS | settings))
        dirs = Directories(wanted.data_dir, wanted.cold_dir)
        self.home = Home(disk, dirs, lambda: sealed_runs(disk, dirs))
        self.engine = engine = Engine(wanted, disk, clock)
        self.cursors, self.stages = Cursors(engine), Stages(engine, open_admission(engine))
        # The same ids in every run of a test, and others after every restart.
        self.queues = Queues(engine, lambda bits: (1 << bits - 1) + (restarts << 32))
        self.routers = Routers(engine)
        self.router_journal = RouterRecovery(engine, self.routers)
        extensions = (
            self.cursors,
            self.stages.identities,
            *self.queues.extensions,
            self.router_journal,
        )
        for extension in extensions:
            engine.register(extension)
        # How late it was for recovery, before it followed a clock that was set back.
        self.aged_to_ms = 0
        expire_all = engine.expire_all

        def age(now_ms: int) -> None:
            self.aged_to_ms = max(self.aged_to_ms, now_ms)
            expire_all(now_ms)

        engine.expire_all = age  # type: ignore[method-assign]
        forget = engine.forget_later_times

        def set_back(shown_ms: int, now_ms: int) -> None:
            forget(shown_ms, now_ms)
            on_set_back(engine, shown_ms, now_ms)

        engine.forget_later_times = set_back  # type: ignore[method-assign]
        engine.reserve.let_start()
        self.checkpointer: Checkpointer = Recovery(engine).run()
        if engine.queue.refusals.failure is None and engine.settings.disk_reserve_bytes is not None:
            engine.reserve.make(engine.settings.disk_reserve_bytes)
        self.router_journal.start()
        for extension in self.queues.extensions:
            extension.start()
        self.tiers = ColdTier(engine)


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that only steps aside for others, where there are none."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as result:
            return result.value
