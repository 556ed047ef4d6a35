"""Topics that have moved to another server, and servers that do not answer, as an archive meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.options import ServerOptions, parse_read
from pyspark_topics.pipelines.archive import Archive, _Archiver
from pyspark_topics.pipelines.context import Context
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.progress import Progress
from pyspark_topics.pipelines.state import Homes
from tests.spark.pipelines.lakes import add
from tests.spark.servers.fleet import Simulated, simulated, state
from topics.client import Unreachable


class Somewhere:
    """A client that knows where topics are."""

    def __init__(self, **homes: str) -> None:
        self.homes = homes

    def home(self, topic: str) -> str:
        return self.homes.get(topic, "")


def test_a_topic_that_moved_to_another_server_is_another_topic(tmp_path: Path) -> None:
    note = tmp_path / "servers.json"

    def homes(**where: str) -> Homes:
        return Homes(note, Somewhere(**where), "http://a")  # type: ignore[arg-type]

    homes(orders="http://b").check(["orders"], [])
    homes(orders="http://b", clicks="http://a").check(["orders", "clicks"], ["orders", "clicks"])
    with pytest.raises(PipelineFailed, match='"orders" was on http://b and is on http://a now'):
        homes(orders="http://a").check(["orders"], ["orders"])
    with pytest.raises(PipelineFailed, match='"old" was on http://a and is on http://b now'):
        homes(old="http://b").check(["old"], ["old"])  # archived when there was one server


def test_one_server_needs_no_note(tmp_path: Path) -> None:
    Homes(tmp_path / "servers.json", Somewhere(), "http://a").check(["orders"], ["orders"])  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def archiver(url: str, folder: Path, *, once: bool) -> _Archiver:
    lake = Lake(str(folder / "lake"))
    add(lake, 1, 5)

    def no_spark() -> None:
        raise AssertionError("a look takes no Spark")

    server, progress = ServerOptions(url, None, 0.1), Progress("it", "archive")
    context = Context(server, folder, no_spark, "it", progress, once=once)  # type: ignore[arg-type]
    given = {"url": url, "subscribePattern": ".*", "patience": "0.1"}
    settings = Archive(pattern=".*", table=str(folder / "lake"))
    return _Archiver(settings, context, parse_read(given), context.server.client(), lake)


def test_an_archive_that_follows_goes_on_without_a_silent_server(tmp_path: Path) -> None:
    one, two = Simulated(state("orders", 20, 1)), Simulated(state("clicks"))
    two.is_down = True
    with simulated(one, two) as url:
        following = archiver(url, tmp_path, once=False)
        assert list(following._look()) == ["orders"]
        assert f"topics of {two.url} wait" in following.context.progress.figures().note
        two.is_down = False
        assert sorted(following._look()) == ["clicks", "orders"]
        assert following.context.progress.figures().note == ""
        following.client.close()


def test_an_archive_that_ends_waits_for_all_servers(tmp_path: Path) -> None:
    one, two = Simulated(state("orders", 20, 1)), Simulated(state("clicks"))
    two.is_down = True
    with simulated(one, two) as url:
        once = archiver(url, tmp_path, once=True)
        with pytest.raises(Unreachable, match=two.url):
            once._look()
        once.client.close()
