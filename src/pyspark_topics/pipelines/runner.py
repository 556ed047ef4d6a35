"""Runs pipelines side by side: a thread each, one Spark session for all, one place that shows progress."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Protocol

from pyspark.errors import PySparkException

from pyspark_topics.errors import explain, has_trace, written_for_users
from pyspark_topics.pipelines.context import Context, Outcome, Pipeline, RunSettings
from pyspark_topics.pipelines.progress import Figures, Progress, Reports
from pyspark_topics.pipelines.state import claim_state

log = logging.getLogger(__name__)

SHOW_EVERY_S = 0.5
# A pipeline that failed is started again after a pause that doubles each time, and is short again once it
# has moved on.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Display(Protocol):
    def show(self, pipelines: list[Figures], *, last: bool = False) -> None: ...


@dataclass
class Runner(RunSettings):
    display: Display
    _: KW_ONLY
    # Start failed pipelines again, for as long as the runner runs and Spark does.
    restart: bool = False
    spark_is_gone: Callable[[], bool] = lambda: False

    def run(self, pipelines: Mapping[str, Pipeline]) -> dict[str, Outcome]:
        """Until all have ended. What failed has an outcome that is not `ok`; the others go on."""
        workers = [_Worker(self, name, pipeline) for name, pipeline in pipelines.items()]
        reports = Reports(self.server)
        for worker in workers:
            worker.thread.start()
        while running := [worker for worker in workers if worker.thread.is_alive()]:
            running[0].thread.join(SHOW_EVERY_S)
            self._show(workers, reports)
        self._show(workers, reports, last=True)
        reports.close()
        return {worker.name: worker.outcome for worker in workers}

    def _show(self, workers: list["_Worker"], reports: Reports, *, last: bool = False) -> None:
        figures = [worker.progress.figures() for worker in workers]
        self.display.show(figures, last=last)
        for each in figures:
            reports.note(each)


class _Worker:
    """One pipeline's thread."""

    def __init__(self, runner: Runner, name: str, pipeline: Pipeline) -> None:
        self.name = name
        self.progress = Progress(name, pipeline.kind)
        self.outcome = Outcome()
        self._runner = runner
        self._pipeline = pipeline
        # Daemon: a thread that hangs in Spark must not keep a process alive that was told to end.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            before = self.progress.figures().batches
            self.outcome = self._attempt()
            if self.outcome.ok or not self._runner.restart or self._runner.stop.is_set():
                return
            if self._runner.spark_is_gone():
                # Only another process has another Spark: end, so that the one that started us starts it.
                self._runner.stop.set()
                return
            if self.progress.figures().batches > before:
                pause = FIRST_PAUSE_S
            if self._runner.stop.wait(pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _attempt(self) -> Outcome:
        runner = self._runner
        folder = runner.state / self.name
        shared = {one.name: getattr(runner, one.name) for one in fields(RunSettings)}
        context = Context(**{**shared, "state": folder}, name=self.name, progress=self.progress)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            claim_state(folder)
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
        sentence = written_for_users(error)
        if sentence is None and self._runner.spark_is_gone():
            sentence = "Spark has ended; spark.log in the folder of the pipelines' state may say why"
        if sentence is None and isinstance(error, PySparkException) and not has_trace(error):
            sentence = explain(error)  # Spark on a query that cannot be run; no code of ours is in it
        if sentence is None:
            # A defect: it shows its trace.
            log.error("%s failed", self.name, exc_info=error)
        why = sentence or explain(error)
        self.progress.say("failed", why)
        return Outcome(ok=False, facts={"error": why})
