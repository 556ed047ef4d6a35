"""An engine in this process, for work without a wire: every append is in the journal when it returns."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.payloads import Shape
from tests.support.appending import append
from topics.core.clock import SystemClock
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.core.settings import Settings
from topics.log import delete_records
from topics.log.engine import Engine
from topics.log.lifecycle import put_topic
from topics.log.read.filter import TagMatch
from topics.log.recover.recovery import Recovery
from topics.log.seal.checkpoint import Checkpointer
from topics.log.topic import Topic
from topics.storage.filesystem import Filesystem

_NO_BUDGET = sys.maxsize


def _raise(error: ApiError) -> None:
    raise error


def _ignore(_: object) -> None:
    return None


class LocalEngine:
    def __init__(self, directory: Path, *, hot_bytes: int = _NO_BUDGET) -> None:
        settings = Settings(data_dir=str(directory), hot_bytes=hot_bytes)
        self.engine = Engine(settings, Filesystem(), SystemClock())
        self.checkpointer: Checkpointer = Recovery(self.engine).run()
        gc.collect()
        gc.freeze()

    def create(self, name: str) -> Topic:
        put_topic(self.engine, name, TopicConfig(), _ignore, _raise)
        self.engine.queue.sync_now()
        return self.engine.require(name)

    def append(self, name: str, body: bytes) -> None:
        """Append the records of a JSON request; readers see them when this returns."""
        append(self.engine, name, body, _ignore, _raise)
        self.engine.queue.sync_now()

    def fill(self, name: str, shape: Shape, count: int, batch: int = 1000) -> None:
        for first in range(1, count + 1, batch):
            self.append(name, shape.body(range(first, min(first + batch, count + 1))))

    def delete_tagged(self, topic: Topic, tags: Sequence[str]) -> int:
        deleted: list[int] = []
        for tag in tags:
            delete_records(self.engine, topic, None, TagMatch(tag, False), deleted.append, _raise)
        self.engine.queue.sync_now()
        return sum(deleted)

    def keep_house(self) -> None:
        """What the server does in the background, when it is due: seal, snapshot, leave memory."""
        self.engine.rotate_if_full()
        if self.checkpointer.is_due():
            self.checkpointer.run_now()

    def close(self) -> None:
        self.engine.close(clean=True)


class Pace(NamedTuple):
    """What one call took, by the clock and in processor time of this process."""

    seconds: float
    cpu_seconds: float


def pace(work: Callable[[], object], times: int) -> Pace:
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(times):
        work()
    return Pace((time.perf_counter() - started) / times, (time.process_time() - cpu) / times)
