"""Pipelines side by side: one that fails takes no other with it, and all end when they are told to."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from pyspark_topics.errors import PipelineFailed, written_for_users
from pyspark_topics.options import Server
from pyspark_topics.pipelines import runner as runner_module
from pyspark_topics.pipelines.board import Board
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.progress import Lines, Progress, Snapshot
from pyspark_topics.pipelines.runner import Runner, explain


class Fake:
    kind: ClassVar[str] = "fake"
    follows: ClassVar[bool] = True

    def __init__(self, work: Callable[[Context], Outcome]) -> None:
        self._work = work

    def run(self, context: Context) -> Outcome:
        return self._work(context)


class Silent:
    def show(self, snapshots: list[Snapshot], *, last: bool = False) -> None:
        self.last = snapshots


def no_spark() -> None:
    raise AssertionError("nobody asked for Spark")


def make(tmp_path: Path, **more: bool) -> Runner:
    return Runner(Server("http://127.0.0.1:1"), tmp_path, no_spark, Silent(), **more)  # type: ignore[arg-type]


def test_the_others_go_on_when_one_fails(tmp_path: Path) -> None:
    def fails(context: Context) -> Outcome:
        raise PipelineFailed("no space left")

    def works(context: Context) -> Outcome:
        assert context.state.is_dir()
        context.progress.advance(3, lag=0)
        return Outcome(facts={"n": 3})

    outcomes = make(tmp_path).run({"bad": Fake(fails), "good": Fake(works)})
    assert outcomes["good"] == Outcome(facts={"n": 3})
    assert outcomes["bad"] == Outcome(ok=False, facts={"error": "no space left"})


def test_what_failed_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "FIRST_PAUSE_S", 0.001)
    attempts = []

    def fails_twice(context: Context) -> Outcome:
        attempts.append(context)
        if len(attempts) < 3:
            raise PipelineFailed("not yet")
        return Outcome()

    assert make(tmp_path, restart=True).run({"it": Fake(fails_twice)})["it"].ok
    assert len(attempts) == 3


def test_without_spark_nothing_is_started_again(tmp_path: Path) -> None:
    """So that the process ends, and whoever watches it starts another, with another Spark."""
    attempts = []

    def fails(context: Context) -> Outcome:
        attempts.append(context)
        raise OSError("connection refused")

    def follows(context: Context) -> Outcome:
        context.stop.wait()
        return Outcome()

    runner = make(tmp_path, restart=True)
    runner.spark_is_gone = lambda: True
    outcomes = runner.run({"a": Fake(fails), "b": Fake(follows)})
    assert (outcomes["a"].ok, outcomes["b"].ok, len(attempts)) == (False, True, 1)
    assert outcomes["a"].facts["error"].startswith("Spark has ended")


def test_being_told_to_end_is_no_failure(tmp_path: Path) -> None:
    started = threading.Event()
    runner = make(tmp_path, restart=True)

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
    assert isinstance(runner.view, Silent)
    assert [one.state for one in runner.view.last] == ["stopped", "stopped"]


def test_a_failure_nobody_foresaw_is_one_line_and_a_trace() -> None:
    error = Exception(
        "[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\n  File user.py\n"
        "ValueError: boom\n\n at org.apache.spark"
    )
    assert written_for_users(error) is None
    assert explain(error) == "ValueError: boom"
    assert explain(ValueError("first\nsecond")) == "first"
    assert explain(ValueError()) == "ValueError"


# --- progress -------------------------------------------------------------------------------------------


def test_rate_lag_and_time_left() -> None:
    now = 100.0
    progress = Progress("lake", "archive", clock=lambda: now)
    progress.say("running")
    progress.expect(500)
    assert progress.snapshot().seconds_left is None
    now += 2.0
    progress.advance(100, lag=400, lost=1)
    one = progress.snapshot()
    assert (one.records, one.batches, one.gaps, one.rate, one.lag) == (100, 1, 1, 50.0, 400)
    assert one.seconds_left == 8.0
    assert one.as_text() == "lake (archive) running, 100 records, 50/s, 1 gaps, lag 400, 8 s left"
    for _ in range(30):  # the rate is that of the last seconds, not of all time
        now += 1.0
        progress.advance(10, lag=0)
    assert progress.snapshot().rate == pytest.approx(10.0)


def test_lines_tell_what_changed() -> None:
    progress = Progress("lake", "archive")
    machine, people = io.StringIO(), io.StringIO()
    views = Lines(machine, as_json=True, pause_s=0.0), Lines(people, as_json=False, pause_s=60.0)

    def show() -> None:
        for view in views:
            view.show([progress.snapshot()])

    show()
    progress.say("running")
    progress.advance(1, lag=2)
    show()
    show()
    progress.advance(2, lag=0)
    show()
    progress.say("failed", "no space left")
    show()
    lines = [json.loads(line) for line in machine.getvalue().splitlines()]
    assert [(line["state"], line["records"], line["lag"]) for line in lines] == [
        ("starting", 0, None),
        ("running", 1, 2),
        ("running", 3, 0),
        ("failed", 3, 0),
    ]
    assert lines[-1]["note"] == "no space left"
    # People get a line when the state changes, and figures only now and then.
    assert [line.split(",")[0] for line in people.getvalue().splitlines()] == [
        "lake (archive) starting",
        "lake (archive) running",
        "lake (archive) failed",
    ]


def test_bars_on_a_terminal() -> None:
    progress = Progress("lake", "archive")
    progress.say("running", "[orders]")
    progress.advance(1200, lag=800)
    screen = io.StringIO()
    with Board(Console(file=screen, force_terminal=True, width=140)) as board:
        board.show([progress.snapshot()])
    assert "1,200 records" in screen.getvalue()
    assert "lag 800" in screen.getvalue()
    assert "[orders]" in screen.getvalue()
