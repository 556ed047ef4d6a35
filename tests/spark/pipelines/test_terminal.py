"""Lines for logs and machines, bars for a terminal."""

import io
import json

from rich.console import Console

from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.terminal import Board, Lines


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
