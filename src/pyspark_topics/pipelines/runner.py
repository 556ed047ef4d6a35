"""Runs pipelines side by side: a thread each, one Spark session for all, one place that shows progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from pyspark_topics.java import NoJava
from pyspark_topics.options import OptionError
from pyspark_topics.pipelines.context import Context, Outcome, Pipeline, PipelineFailed, Server
from pyspark_topics.pipelines.progress import Progress, Snapshot
from topics.client import TopicsError

log = logging.getLogger(__name__)

SHOW_EVERY_S = 0.5
# A pipeline that failed is started again after a pause that doubles each time, and is short again once it
# has moved on.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# What has a message for the user; anything else is a defect and shows its trace.
_EXPECTED = (PipelineFailed, TopicsError, OptionError, NoJava)


class View(Protocol):
    def show(self, snapshots: list[Snapshot], *, last: bool = False) -> None: ...


@dataclass
class Runner:
    server: Server
    state: Path
    session: Callable[[], SparkSession]
    view: View
    once: bool = False
    # Start failed pipelines again, for as long as the runner runs.
    restart: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, pipelines: Mapping[str, Pipeline]) -> dict[str, Outcome]:
        """Until all have ended. What failed has an outcome that is not `ok`; the others go on."""
        workers = [_Worker(self, name, pipeline) for name, pipeline in pipelines.items()]
        for worker in workers:
            worker.thread.start()
        while any(worker.thread.is_alive() for worker in workers):
            workers[0].ended.wait(SHOW_EVERY_S) if len(workers) == 1 else self.stop.wait(SHOW_EVERY_S)
            if self.stop.is_set():
                for worker in workers:
                    worker.thread.join(SHOW_EVERY_S)
            self.view.show([worker.progress.snapshot() for worker in workers])
        self.view.show([worker.progress.snapshot() for worker in workers], last=True)
        return {worker.name: worker.outcome for worker in workers}


class _Worker:
    """One pipeline's thread."""

    def __init__(self, runner: Runner, name: str, pipeline: Pipeline) -> None:
        self.name = name
        self.progress = Progress(name, pipeline.kind)
        self.outcome = Outcome()
        self.ended = threading.Event()
        self._runner = runner
        self._pipeline = pipeline
        # Daemon: a thread that hangs in Spark must not keep a process alive that was told to end.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            pause = FIRST_PAUSE_S
            while True:
                before = self.progress.snapshot().batches
                self.outcome = self._attempt()
                if self.outcome.ok or not self._runner.restart or self._runner.stop.is_set():
                    return
                if self.progress.snapshot().batches > before:
                    pause = FIRST_PAUSE_S
                if self._runner.stop.wait(pause):
                    return
                pause = min(pause * 2, LONGEST_PAUSE_S)
        finally:
            self.ended.set()

    def _attempt(self) -> Outcome:
        runner = self._runner
        folder = runner.state / self.name
        context = Context(
            self.name, runner.server, folder, self.progress, runner.stop, runner.once, runner.session
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            outcome = self._pipeline.run(context)
        except Exception as error:
            if runner.stop.is_set():
                # What breaks off because it was told to end is no failure; nothing half done counts.
                log.debug("%s broke off", self.name, exc_info=error)
                self.progress.say("stopped")
                return Outcome()
            return self._failed(error)
        self.progress.say("stopped" if runner.stop.is_set() else "done" if outcome.ok else "failed")
        return outcome

    def _failed(self, error: Exception) -> Outcome:
        why = explain(error)
        if not isinstance(error, _EXPECTED) and why == str(error):
            log.error("%s failed", self.name, exc_info=error)
        self.progress.say("failed", why)
        return Outcome(ok=False, facts={"error": why})


def explain(error: BaseException) -> str:
    """The sentence in an error that was written for the user, also where Spark wrapped it in its own."""
    text = str(error)
    for line in reversed(text.splitlines()):
        for kind in _WRAPPED:
            _, found, sentence = line.partition(f"{kind}: ")
            if found:
                return sentence.strip()
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


_WRAPPED: tuple[Any, ...] = (
    "PipelineFailed",
    "OptionError",
    "RecordsLost",
    "BadRow",
    "Refused",
    "Unreachable",
    "NotRepeatable",
)
