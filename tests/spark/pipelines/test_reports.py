"""How pipelines fare is told to the server, which outlives them; a server that is away holds nobody up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.progress import Figures, Reports
from pyspark_topics.pipelines.runner import Runner
from tests.contract.server import Server
from tests.spark.pipelines.test_runner import Fake, Silent, no_spark


@pytest.fixture
def server(tmp_path: Path) -> Any:
    server = Server(tmp_path / "data").start()
    yield server
    server.kill()


def known(server: Server) -> dict[str, tuple[str, str | None]]:
    shown = server.send("GET", "/v0/pipelines").ok()["pipelines"]
    return {one["pipeline"]: (one["state"], one["why"]) for one in shown}


def test_a_run_tells_how_each_of_its_pipelines_ended(server: Server, tmp_path: Path) -> None:
    def fails(context: Context) -> Outcome:
        raise PipelineFailed("no space left " * 200)

    seen: list[Any] = []

    def works(context: Context) -> Outcome:
        context.progress.advance(1)
        while not known(server).get("good"):
            pass
        seen.append(known(server)["good"])
        return Outcome()

    def finds(context: Context) -> Outcome:
        return Outcome(ok=False)

    runner = Runner(Address(server.url), tmp_path, no_spark, Silent())  # type: ignore[arg-type]
    runner.run({"bad": Fake(fails), "good": Fake(works), "audit": Fake(finds)})
    assert seen == [("running", None)]
    states = known(server)
    assert states["good"] == ("done", None)
    assert states["audit"] == ("failed", None)
    assert states["bad"][0] == "failed"
    assert str(states["bad"][1]).startswith("no space left")


class Heard(Reports):
    """Tells a list instead of a server."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[tuple[str, str | None]] = []
        self._heard = threading.Event()
        super().__init__(Address("http://127.0.0.1:1"), lambda: self.now_s)

    def _tell(self, name: str, said: Any) -> bool:
        self.told.append((said.state, said.why))
        self._heard.set()
        return True

    def hear(self, state: str, note: str = "", batches: int = 0) -> list[tuple[str, str | None]]:
        """What was told of this."""
        before, self.told = self.told, []
        self._heard.clear()
        self.note(Figures("lake", "archive", state, note, batches=batches))
        if self._untold:
            assert self._heard.wait(30)
        told, self.told = self.told, before
        return told


def test_it_tells_changes_and_one_that_failed_counts_as_failed_until_it_has_moved() -> None:
    heard = Heard()
    assert heard.hear("starting") == [("running", None)]
    assert heard.hear("waiting", "for topics") == []
    assert heard.hear("failed", "no space") == [("failed", "no space")]
    assert heard.hear("failed", "no space") == []
    # Started again, and failing again: the same, for those who look.
    for _ in range(5):
        heard.now_s += 60
        assert heard.hear("running") == []
        assert heard.hear("failed", "no space") == []
    assert heard.hear("failed", "no server") == [("failed", "no server")]
    assert heard.hear("running", batches=1) == [("running", None)]
    assert heard.hear("failed", "no space", batches=1) == [("failed", "no space")]
    assert heard.hear("running", batches=1) == []
    heard.now_s += 31
    assert heard.hear("running", batches=1) == [("running", None)]
    heard.now_s += 3601
    assert heard.hear("running", batches=1) == [("running", None)]
    assert heard.hear("stopped", batches=1) == [("stopped", None)]
    heard.close()


class Away(Reports):
    """To a server that does not answer the first times."""

    retry_s = 0.001

    def __init__(self, failures: int) -> None:
        self.is_told = threading.Event()
        self._left = failures
        super().__init__(Address("http://127.0.0.1:1"))

    def _tell(self, name: str, said: Any) -> bool:
        self._left -= 1
        if self._left < 0:
            self.is_told.set()
        return self._left < 0


def test_a_server_that_is_away_is_told_when_it_is_back() -> None:
    reports = Away(2)
    reports.note(Figures("lake", "archive", "failed", "no space"))
    assert reports.is_told.wait(30)
    reports.close()


def test_a_run_ends_without_a_server(tmp_path: Path) -> None:
    runner = Runner(Address("http://127.0.0.1:1"), tmp_path, no_spark, Silent())  # type: ignore[arg-type]
    assert runner.run({"good": Fake(lambda context: Outcome())})["good"].ok
