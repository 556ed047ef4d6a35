"""A server without its sockets: the engine and everything layered on it, recovered from a simulated disk."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tests.crash.disk import SimulatedDisk
from tests.flow.open_doors import open_doors
from topics.flow.cursors import Cursors
from topics.flow.queues.registry import Queues
from topics.flow.routers.recovery import RouterRecovery
from topics.flow.routers.registry import Routers
from topics.flow.stages.stages import Stages
from topics.flow.upkeep import Tiers
from topics.keep.directory import sealed_runs
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery
from topics.log.seal.checkpoint import Checkpointer
from topics.storage.directories import Directories
from topics.storage.home import Home
from topics.values.clock import ManualClock
from topics.values.settings import Settings

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

    def __init__(self, disk: SimulatedDisk, clock: ManualClock, **settings: Any) -> None:
        restarts = disk.restarts
        wanted = Settings(**(SETTINGS | settings))
        dirs = Directories(wanted.data_dir, wanted.cold_dir)
        self.home = Home(disk, dirs, lambda: sealed_runs(disk, dirs))
        self.engine = engine = Engine(wanted, disk, clock)
        self.cursors, self.stages = Cursors(engine), Stages(engine, open_doors(engine))
        # The same ids in every run of a test, and others after every restart.
        self.queues = Queues(engine, lambda bits: (1 << bits - 1) + (restarts << 32))
        self.routers = Routers(engine)
        self.router_journal = RouterRecovery(engine, self.routers)
        extensions = (
            *self.cursors.extensions,
            *self.stages.extensions,
            *self.queues.extensions,
            self.router_journal,
        )
        for extension in extensions:
            engine.register(extension)
        engine.reserve.let_start()
        self.checkpointer: Checkpointer = Recovery(engine).run()
        if engine.queue.failure is None and engine.settings.disk_reserve_bytes is not None:
            engine.reserve.make(engine.settings.disk_reserve_bytes)
        self.router_journal.start()
        self.queues.losses.start()
        self.tiers = Tiers(engine)


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that only steps aside for others, where there are none."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as result:
            return result.value
