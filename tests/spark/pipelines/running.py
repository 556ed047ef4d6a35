"""Pipelines run in this process, on the session that all Spark tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.pipelines.context import Outcome, Pipeline
from pyspark_topics.pipelines.progress import Figures
from pyspark_topics.pipelines.runner import Runner
from pyspark_topics.pipelines.state import StatePath
from tests.spark.server import Server


class Notes:
    """A display that remembers what it was shown last."""

    def __init__(self) -> None:
        self.last: dict[str, Figures] = {}

    def show(self, pipelines: list[Figures], *, last: bool = False) -> None:
        self.last = {one.pipeline: one for one in pipelines}


def killed_at(count: int, reached: str = "committed") -> Callable[[str, str], None]:
    """Fail when a pipeline has come to this point so often, as if its process were killed there."""
    left = [count]

    def step(name: str, at: str) -> None:
        left[0] -= at == reached
        if not left[0]:
            raise RuntimeError("killed")

    return step


class Pipelines:
    def __init__(
        self,
        spark: SparkSession,
        server: Server,
        state: StatePath,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._server = server
        self.state = state
        self._storage = storage or {}
        self.notes = Notes()

    def runner(self, **more: Any) -> Runner:
        address = Address(self._server.url)
        more.setdefault("storage", self._storage)
        return Runner(address, self.state, lambda: self._spark, self.notes, **more)

    def once(self, pipeline: Pipeline, name: str = "it", **more: Any) -> Outcome:
        """Up to the heads of now."""
        return self.runner(once=True, **more).run({name: pipeline})[name]

    def run(self, pipeline: Pipeline, name: str = "it", **more: Any) -> dict[str, Any]:
        """The same, for one that is expected to succeed."""
        outcome = self.once(pipeline, name, **more)
        assert outcome.ok, outcome.facts
        return outcome.facts

    def failure(self, pipeline: Pipeline, **more: Any) -> str:
        outcome = self.once(pipeline, **more)
        assert not outcome.ok
        text: str = outcome.facts["error"]
        return text

    @contextmanager
    def following(self, pipelines: dict[str, Pipeline], **more: Any) -> Iterator[Runner]:
        runner = self.runner(**more)
        outcomes: dict[str, Outcome] = {}
        thread = threading.Thread(target=lambda: outcomes.update(runner.run(pipelines)))
        thread.start()
        try:
            yield runner
        finally:
            runner.stop.set()
            thread.join(60)
        assert not thread.is_alive()
        assert all(outcome.ok for outcome in outcomes.values()), outcomes
