"""Pipelines side by side: one that fails takes no other with it, and all end when they are told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from pyspark_topics.errors import PipelineFailed, explain, written_for_users
from pyspark_topics.options import ServerOptions
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.progress import Figures
from pyspark_topics.pipelines.runner import Runner
from tests.spark.servers.fleet import Simulated, simulated


class Fake:
    kind: ClassVar[str] = "fake"
    follows: ClassVar[bool] = True

    def __init__(self, work: Callable[[Context], Outcome]) -> None:
        self._work = work

    def run(self, context: Context) -> Outcome:
        return self._work(context)


class Silent:
    def show(self, pipelines: list[Figures], *, last: bool = False) -> None:
        self.last = pipelines


def no_spark() -> None:
    raise AssertionError("Spark was not needed")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Runner]]:
    with simulated(Simulated()) as url:
        yield lambda **more: Runner(ServerOptions(url), tmp_path, no_spark, Silent(), **more)  # type: ignore[arg-type]


Make = Callable[..., Runner]


def test_the_others_go_on_when_one_fails(make: Make) -> None:
    def fails(context: Context) -> Outcome:
        raise PipelineFailed("no space left")

    def works(context: Context) -> Outcome:
        assert context.state.is_dir()
        context.progress.advance(3, lag=0)
        return Outcome(facts={"n": 3})

    outcomes = make().run({"bad": Fake(fails), "good": Fake(works)})
    assert outcomes["good"] == Outcome(facts={"n": 3})
    assert outcomes["bad"] == Outcome(ok=False, facts={"error": "no space left"})


def test_what_failed_is_started_again(make: Make) -> None:
    attempts = []

    def fails_first(context: Context) -> Outcome:
        attempts.append(context)
        if len(attempts) < 2:
            raise PipelineFailed("not yet")
        return Outcome()

    assert make(restart=True).run({"it": Fake(fails_first)})["it"].ok
    assert len(attempts) == 2


def test_without_spark_nothing_is_started_again(make: Make) -> None:
    """So that the process ends, and its supervisor starts another, with another Spark."""
    attempts = []

    def fails(context: Context) -> Outcome:
        attempts.append(context)
        raise OSError("connection refused")

    def follows(context: Context) -> Outcome:
        context.stop.wait()
        return Outcome()

    runner = make(restart=True)
    runner.spark_is_gone = lambda: True
    outcomes = runner.run({"a": Fake(fails), "b": Fake(follows)})
    assert (outcomes["a"].ok, outcomes["b"].ok, len(attempts)) == (False, True, 1)
    assert outcomes["a"].facts["error"].startswith("Spark has ended")


def test_being_told_to_end_is_no_failure(make: Make) -> None:
    started = threading.Event()
    runner = make(restart=True)

    def follows(context: Context) -> Outcome:
        started.set()
        context.stop.wait()
        return Outcome()

    def breaks_off(context: Context) -> Outcome:
        context.stop.wait()
        raise OSError("the JVM is gone")

    threading.Thread(target=lambda: started.wait() and runner.stop.set()).start()
    outcomes = runner.run({"a": Fake(follows), "b": Fake(breaks_off)})
    assert all(outcome.ok for outcome in outcomes.values())
    assert isinstance(runner.display, Silent)
    assert [one.state for one in runner.display.last] == ["stopped", "stopped"]


def test_the_state_of_an_earlier_version_is_refused_with_the_way_on(make: Make, tmp_path: Path) -> None:
    def works(context: Context) -> Outcome:
        (context.state / "job.json").write_text("{}")
        return Outcome()

    assert make().run({"it": Fake(works)})["it"].ok
    assert make().run({"it": Fake(works)})["it"].ok
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "set-000000.json").write_text("{}")
    error = make().run({"old": Fake(works)})["old"].facts["error"]
    assert error == (
        f"{tmp_path}/old holds the state of another version of topics: finish this pipeline with that "
        "version, then give another folder as state"
    )


def test_a_failure_that_was_not_foreseen_is_one_line_and_a_trace() -> None:
    error = Exception(
        "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n  File user.py\n"
        "ValueError: boom\n\n at org.apache.spark"
    )
    assert written_for_users(error) is None
    assert explain(error) == "ValueError: boom"
    assert explain(ValueError("first\nsecond")) == "first"
    assert explain(ValueError()) == "ValueError"
    of_the_jvm = (
        "An error occurred while calling z:o.a.s.PythonRDD.collectAndServe.\n: SparkException: lost\n\tat x"
    )
    assert explain(RuntimeError(of_the_jvm)) == "SparkException: lost"
