"""Spark's Python workers, found and killed while they work; and work that waits to be interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from tests.support import eventually

WAIT_S = 60


def _processes() -> dict[int, tuple[int, bytes]]:
    """Parent and command line of every process there is."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = (int(stat[1]), (entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found


def descendants(root: int) -> dict[int, bytes]:
    """Command lines of everything a process has started, directly or not."""
    processes = _processes()

    def is_below(pid: int) -> bool:
        while pid in processes and pid != root:
            pid = processes[pid][0]
        return pid == root

    return {pid: command for pid, (_, command) in processes.items() if pid != root and is_below(pid)}


def python_workers(root: int) -> list[int]:
    """What runs tasks, not the daemon that starts them."""
    daemons = [
        pid
        for pid, command in descendants(root).items()
        if b"pyspark.daemon" in command or b"pyspark_topics.workers" in command
    ]
    return [pid for daemon in daemons for pid in descendants(daemon)]


def kill_python_workers(root: int) -> None:
    workers = python_workers(root)
    assert workers
    for pid in workers:
        # One that has just ended by itself is as good as killed.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def jvm(spark: SparkSession) -> int:
    pid: int = spark.sparkContext._gateway.proc.pid
    return pid


class Interruption:
    """Work of a first attempt stops at a row until the test has done what it came for."""

    def __init__(self, folder: Path) -> None:
        self._reached = folder / "reached"
        self._over = folder / "over"

    def pauses_at(self, row: int, column: str) -> Column:
        reached, over = str(self._reached), str(self._over)

        @f.udf("string", useArrow=False)
        def pass_on(number: int, text: str) -> str:
            task = TaskContext.get()
            assert task is not None
            if number == row and task.attemptNumber() == 0 and not os.path.exists(over):
                Path(reached).touch()
                deadline = time.monotonic() + WAIT_S
                while not os.path.exists(over) and time.monotonic() < deadline:
                    time.sleep(0.01)
            return text

        return pass_on("id", column)

    @contextmanager
    def meanwhile(self, act: Callable[[], object]) -> Iterator[None]:
        """Beside a job on this thread, where Spark knows its session: act once the job has stopped."""
        with ThreadPoolExecutor(1) as beside:
            acting = beside.submit(self._when_reached, act)
            yield
        acting.result()

    def _when_reached(self, act: Callable[[], object]) -> None:
        eventually(self._reached.exists, WAIT_S, "the work never got there")
        try:
            act()
        finally:
            self._over.touch()
