"""Jobs: their steps are committed under numbers that outlive them, and noted; and they keep to a rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_topics.client import Client
from pyspark_topics.pipelines.replay import Pace
from pyspark_topics.pipelines.state import SteppedJob
from pyspark_topics.writer import Staged


class Commits(Client):
    """A server that keeps what it is told, or is away."""

    def __init__(self) -> None:
        self.known: list[tuple[str, str, int, list[str]]] = []
        self.is_away = False

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> dict[str, object]:
        if self.is_away:
            raise OSError("the server is away")
        self.known.append((stage, identity, batch, parts))
        return {}


def test_steps_have_numbers_that_go_on(tmp_path: Path) -> None:
    client, path = Commits(), tmp_path / "job.json"
    job = SteppedJob.open(path, {"into": "t"})
    job.commit(client, [Staged("a", ["0"]), Staged("b", ["0", "1"])], at=5)
    # A step without rows has a number all the same: it may have had rows when it was done before.
    job.commit(client, [Staged("c")], at=6)
    again = SteppedJob.open(path, {"into": "t"})
    assert (again.id, again.step, again.at, again.finished) == (job.id, 3, 6, False)
    again.commit(client, [Staged("d", ["0"])], at=7)
    again.finish()
    assert client.known == [
        ("a", job.id, 0, ["0"]),
        ("b", job.id, 1, ["0", "1"]),
        ("d", job.id, 3, ["0"]),
    ]
    assert SteppedJob.open(path, {"into": "t"}).finished
    assert SteppedJob.open(path, {"into": "another"}).step == 0


def test_what_was_not_committed_is_not_noted(tmp_path: Path) -> None:
    client, path = Commits(), tmp_path / "job.json"
    job = SteppedJob.open(path, {})
    job.settle([5, 9])
    client.is_away = True
    with pytest.raises(OSError, match="away"):
        job.commit(client, [Staged("a", ["0"])], at=5)
    again = SteppedJob.open(path, {})
    assert (again.step, again.at, again.plan) == (0, 0, [5, 9])
    client.is_away = False
    again.commit(client, [Staged("a", ["0"])], at=5)
    assert SteppedJob.open(path, {}).plan == [9]


def test_the_rate_is_kept() -> None:
    now = 0.0
    waits: list[float] = []

    def wait(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    pace = Pace(100.0, wait, lambda: now)
    for _ in range(3):
        pace.pay(50)
    now += 10  # time that was lost elsewhere is not made up for in a burst
    pace.pay(50)
    pace.pay(50)
    assert waits == [0.5, 0.5, 0.5]
    unlimited: Callable[[float], None] = pytest.fail
    Pace(0.0, unlimited).pay(1_000_000)
