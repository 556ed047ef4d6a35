"""Figures of a pipeline; lines for logs and machines, bars for a terminal."""

import io
import json

import pytest
from rich.console import Console

from pyspark_topics.pipelines.progress import Board, Lines, Progress


def test_rate_lag_and_time_left() -> None:
    now = 100.0
    progress = Progress("lake", "archive", clock=lambda: now)
    progress.say("running")
    progress.expect(500)
    assert progress.figures().seconds_left is None
    now += 2.0
    progress.advance(100, lag=400, lost=1)
    one = progress.figures()
    assert (one.records, one.batches, one.gaps, one.rate, one.lag) == (100, 1, 1, 50.0, 400)
    assert one.seconds_left == 8.0
    assert one.as_text() == "lake (archive) running, 100 records, 50/s, 1 gaps, lag 400, 8 s left"
    for _ in range(30):  # the rate is that of the last seconds, not of all time
        now += 1.0
        progress.advance(10, lag=0)
    assert progress.figures().rate == pytest.approx(10.0)


def test_lines_tell_what_changed() -> None:
    progress = Progress("lake", "archive")
    machine, people = io.StringIO(), io.StringIO()
    displays = Lines(machine, as_json=True, pause_s=0.0), Lines(people, as_json=False, pause_s=60.0)

    def show() -> None:
        for display in displays:
            display.show([progress.figures()])

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
        board.show([progress.figures()])
    assert "1,200 records" in screen.getvalue()
    assert "lag 800" in screen.getvalue()
    assert "[orders]" in screen.getvalue()
