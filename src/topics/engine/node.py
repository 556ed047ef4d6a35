"""The node: one data directory, the engine on it, and all that is layered on the engine."""

import asyncio
import gc
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from time import monotonic, thread_time
from typing import Any

from topics.core import MAX_SEQ, Clock, Settings, SystemClock, WritesOff
from topics.core.clock import until_next
from topics.flow.admission import Admission
from topics.flow.cursors import Cursors
from topics.flow.disk_space import DiskSpace
from topics.flow.load_shedder import LoadShedder
from topics.flow.pins import SegmentPins
from topics.flow.pipelines import Pipelines
from topics.flow.priority_scheduler import PriorityScheduler
from topics.flow.queues.registry import Queues
from topics.flow.routers.background import RouterPass
from topics.flow.routers.recovery import RouterRecovery
from topics.flow.routers.registry import Routers
from topics.flow.stages.stages import Stages
from topics.flow.upkeep import Span, Upkeep
from topics.flow.watch.fanout import Fanout
from topics.log import MAX_WAITING_OPS, Checkpointer, CommitLoop, Engine, Recovery
from topics.ops.backup_holds import BackupHolds
from topics.ops.directory import sealed_runs
from topics.ops.purge import Purges
from topics.storage import Directories, Filesystem, Home, is_full

# By processor time. As much again may have come by the next walk, and more at once.
LONG_WALK_S = 0.008
_EVERYTHING = 2


class GcFreezer:
    """Excludes from garbage collection what a long collection has left: topics, runs, subscriptions.

    Nobody is answered during a collection, and the objects of a hundred thousand topics take half a second.
    Objects that are excluded are freed all the same when nothing refers to them any more. Only cycles would
    not be, so what clients open and close leaves none behind.
    """

    def __init__(self) -> None:
        self._began_s = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        """Called before and after each walk, on whichever thread it happens."""
        if info["generation"] != _EVERYTHING:
            return
        if phase == "start":
            self._began_s = thread_time()
        elif thread_time() - self._began_s >= LONG_WALK_S:
            gc.freeze()


log = logging.getLogger("topics")

# A clean stop seals what is left only when replaying it would be slow.
SEAL_ON_STOP_BYTES = 64 * 1024 * 1024
# Nothing is acknowledged five seconds after the directory went; this leaves time for a loop that is busy.
LOOK_S = 1.0


class State(Enum):
    """How far a node has come. It never goes back."""

    OPENED = "opened"
    RECOVERED = "recovered"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What a node wrote when it was closed."""

    # Everything that was acknowledged is on disk.
    is_clean: bool
    # Journal that was not synced before.
    journal_bytes: int
    sealed_runs: int
    is_checkpointed: bool
    took_s: float


class DirectoryWatch:
    """Looks every second whether the log still lies where its path says.

    A directory that is moved away, removed or replaced takes its open files along: writes would succeed, and
    be acknowledged, and no later start would find them. So they end.
    """

    def __init__(self, home: Home, engine: Engine) -> None:
        self._home = home
        self._engine = engine
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_next(LOOK_S, loop.time()), self._look_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        if self.look():
            self.start()

    def look(self) -> bool:
        """On the loop. What is wrong stays wrong until a restart: what became of the files is not known."""
        if self._home.keep() and self._engine.journal.is_in_place():
            return True
        why = f"the data directory {self._engine.dirs.root} was replaced or moved away"
        log.error("%s: nothing is written any more until a restart", why)
        self._engine.end_writes(WritesOff.DIRECTORY_REPLACED, why)
        return False


class Node:
    """Opened when it is made: the directory is locked, and nothing in it has been read yet."""

    # From recovery on.
    checkpointer: Checkpointer
    # While it runs.
    commit: CommitLoop
    upkeep: Upkeep
    purges: Purges
    holds: BackupHolds

    def __init__(self, settings: Settings, fs: Filesystem | None = None, clock: Clock | None = None) -> None:
        fs = fs or Filesystem()
        dirs = Directories(settings.data_dir, settings.cold_dir)
        self.home = Home(fs, dirs, lambda: sealed_runs(fs, dirs))
        try:
            # Nothing was ever written here, so there is nothing to recover.
            self.is_new = not dirs.has_log(fs)
            self.settings = _with_cold_dir(self.home.cold_dir, settings)
            self.engine = engine = Engine(self.settings, fs, clock or SystemClock())
        except BaseException:
            self.home.release()
            raise
        engine.require_home = self.home.require
        engine.store.is_reachable = self.home.has
        self._watch = DirectoryWatch(self.home, engine)
        self._freezer = GcFreezer()
        self.load_shedder = LoadShedder(lambda: engine.queue_depth / MAX_WAITING_OPS)
        self.scheduler = PriorityScheduler(self.load_shedder, open_group=lambda: engine.open_group)
        self.cursors = Cursors(engine)
        self.pipelines = Pipelines(engine)
        self.pins = SegmentPins(engine)
        self.routers = Routers(engine)
        self.admission = Admission(
            engine, self.load_shedder, self.scheduler, self.routers.pull_for_reader, self.routers.keep_reader
        )
        self.stages = Stages(engine, self.admission)
        self.queues = Queues(engine, pull=self.routers.pull)
        routing = RouterRecovery(engine, self.routers)
        queues = self.queues.extensions
        own = (self.cursors, self.pipelines, self.stages.identities)
        for extension in (*own, *queues, routing):
            engine.register(extension)
        self.disk = DiskSpace(engine)
        self.fanout = Fanout(engine, self.routers.pull_for_reader, self.load_shedder, self.scheduler.protect)
        # Surrounds recovery and checkpoints, for those who want to see them in a trace.
        self.span: Span = nullcontext
        # How much of the journal recovery has read, from 0 to 1.
        self.progress = 0.0
        self.state = State.OPENED
        self._opened_s = monotonic()
        self._recovery_s: float | None = None

    @property
    def is_running(self) -> bool:
        return self.state is State.RUNNING

    @property
    def recovery_seconds(self) -> float:
        """What recovery has taken so far, or took."""
        return monotonic() - self._opened_s if self._recovery_s is None else self._recovery_s

    def recover(self, note: Callable[[float], None] = lambda _: None) -> None:
        """Any thread. `note` is told of the progress, and ends the recovery when it raises."""

        def progress(reached: float) -> None:
            note(reached)
            self.progress = reached

        # Nearly all that is made here stays. With many topics, looking through it for garbage again and again
        # is two fifths of a start, and one look at all of it at the end would hold probes up.
        gc.disable()
        try:
            self.checkpointer = Recovery(self.engine, progress).run()
            gc.freeze()
        finally:
            gc.enable()
        self.state = State.RECOVERED

    def run(self) -> None:
        """On the loop, from here on: writes are committed, files looked after, copies forwarded."""
        loop = asyncio.get_running_loop()
        self.load_shedder.start(loop)
        self.commit = CommitLoop(self.engine, loop, self.load_shedder, self.scheduler)
        self.upkeep = Upkeep(self.engine, self.commit, self.checkpointer, self.span)
        self.upkeep.start()
        self.disk.start()
        self._watch.start()
        self.purges = Purges(self.engine, self.upkeep.checkpoints)
        self.holds = BackupHolds(self.engine, self.upkeep.checkpoints)
        brake = self.commit.brake
        self.routers.is_braked = lambda: brake.is_on
        self._forwarding = RouterPass(self.routers, loop, self.load_shedder, self.commit)
        for extension in self.engine.extensions:
            extension.start()
        self.stages.start()
        if self.engine.reserve.is_needed:
            self.engine.queue.refusals.note_full()
        self.state = State.RUNNING
        self._recovery_s = self.recovery_seconds
        # What exists now stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        self._freezer.start()

    async def close(self) -> Flushed | None:
        """A last checkpoint, and the directory is free. A node that does not run is left as it is."""
        if not self.is_running:
            return None
        began, journal, sealer = monotonic(), self.engine.journal, self.checkpointer.sealer
        synced = journal.synced
        sealed = sealer.sealed_runs
        is_checkpointed = await self._settle()
        is_clean = self.engine.queue.refusals.failure is None
        self.leave(clean=is_clean)
        return Flushed(
            is_clean=is_clean,
            journal_bytes=(journal.position if is_clean else journal.synced) - synced,
            sealed_runs=sealer.sealed_runs - sealed,
            is_checkpointed=is_checkpointed,
            took_s=monotonic() - began,
        )

    async def _settle(self) -> bool:
        """Whatever runs ends, and what it left is written. Returns whether there is a last checkpoint."""
        self._freezer.stop()
        self.load_shedder.stop()
        self._watch.stop()
        self._watch.look()
        self._forwarding.stop()
        await self.disk.stop()
        await self.purges.stop()
        await self.upkeep.stop()
        await self.commit.drain()
        self.commit.close()
        return self.engine.queue.refusals.failure is None and self._checkpoint_last()

    def _checkpoint_last(self) -> bool:
        large = self.engine.journal.retained_bytes() > SEAL_ON_STOP_BYTES
        try:
            self.checkpointer.run_now(everything=large)
        except OSError as error:
            if not is_full(error):
                raise
            log.warning("no room for a last checkpoint; the next start will read more of the journal")
            return False
        return self.engine.queue.refusals.failure is None

    def leave(self, *, clean: bool) -> None:
        """Close the files as they are, and let others use the directory."""
        self.engine.close(clean=clean)
        self.home.release()
        self.state = State.CLOSED


def _with_cold_dir(cold_dir: str | None, settings: Settings) -> Settings:
    """Without a second tier nothing is moved there any more; what had been moved is still read."""
    if cold_dir is None or settings.cold_dir is not None:
        return replace(settings, cold_dir=cold_dir)
    log.warning("TOPICS_COLD_DIR is not set; old segments are still read from %s", cold_dir)
    return replace(settings, cold_dir=cold_dir, hot_retain_segments=MAX_SEQ)
