"""Everything but reading and writing: the wire's keys as attributes, lists as iterators."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sdk.both import connect
from tests.sdk.conftest import Play
from tests.sdk.test_reading import fill
from topics import Forbidden, Refused, ServerCursor, TopicNotFound, Topics, Unauthorized
from topics.testing import TopicsServer


def test_topics_are_listed_over_pages(play: Play, client: Topics, name: str) -> None:
    for number in range(5):
        client.topic(f"{name}.{number}").write(number)

    async def scenario(server: Any) -> None:
        listed = [entry async for entry in server.list_topics(name + ".")]
        assert [entry.topic for entry in listed] == [f"{name}.{number}" for number in range(5)]
        assert {entry.head_seq for entry in listed} == {1}
        with pytest.raises(AttributeError, match="it has topic"):
            _ = listed[0].nothing

    play(scenario)


def test_deletes_and_drops_and_their_rehearsals(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 6)
    client.topic(name).write("tagged", tag="user:7")

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        rehearsed = await topic.delete(before_seq=3, dry_run=True)
        assert (rehearsed.deleted, rehearsed.dry_run) == (2, True)
        assert (await topic.delete(before_seq=3)).deleted == 2
        assert (await topic.delete(seqs=[4, 5])).count == 3
        assert (await topic.delete(tag="user:*")).deleted == 1
        with pytest.raises(TypeError):
            await topic.delete()
        ledger = [(entry.first_seq, entry.last_seq, entry.kind) async for entry in topic.ledger()]
        assert [entry for entry in ledger if entry[2] == "deleted"] != []
        with pytest.raises(Refused) as refused:
            await topic.drop(if_empty=True)
        assert refused.value.code == "topic_not_empty"
        assert (await topic.drop(dry_run=True)).deleted is False
        assert (await topic.drop()).deleted is True
        with pytest.raises(TopicNotFound):
            await topic.describe()

    play(scenario)


def test_the_ledger_says_what_was_lost(play: Play, client: Topics, name: str, lose: Any) -> None:
    fill(client, name, 5)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        ledger = [(one.first_seq, one.last_seq, one.kind) async for one in server.topic(name).ledger()]
        assert ledger == [(1, 2, "cap")]

    play(scenario)


def test_cursors_at_the_server_are_listed(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        async for _ in topic.read(ServerCursor("billing"), limit=2):
            pass
        assert [(one.consumer, one.seq, one.lag) async for one in topic.cursors()] == [("billing", 2, 1)]

    play(scenario)


def test_routes(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        router = await server.route(name, name + "-in", name + "-out", tag="a:*")
        assert (router.created, router.source, router.dest) == (True, name + "-in", name + "-out")
        await server.topic(name + "-in").write(1, tag="a:1")
        await server.topic(name + "-in").write(2, tag="b")
        assert [record.data async for record in server.topic(name + "-out").read()] == [1]
        assert name in [entry.router async for entry in server.routers()]
        assert (await server.unroute(name)).deleted is True
        assert name not in [entry.router async for entry in server.routers()]

    play(scenario)


def test_the_server_itself(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 1)

    async def scenario(server: Any) -> None:
        metrics, info = await server.metrics(), await server.info()
        assert isinstance(metrics["topics"], int)
        assert info["writes"] is True
        assert (await server.purge()).state == "done"

    play(scenario)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://h/?q=1",
        "http://a b",
        "http://a\nb",
        "http://a..b",
    ],
)
def test_a_bad_address_is_told_at_once(surface: str, url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        connect(surface, url)


@pytest.mark.parametrize(
    "times",
    [
        *({"timeout_s": seconds} for seconds in (0, -1, -0.5, math.nan, math.inf, -math.inf)),
        *({"retry_s": seconds} for seconds in (-1, math.nan)),
    ],
    ids=str,
)
def test_times_that_are_none_are_told_at_once(surface: str, times: dict[str, float]) -> None:
    (name,) = times
    with pytest.raises(ValueError, match=f"^{name} is "):
        connect(surface, "http://127.0.0.1:9", **times)


def test_a_client_may_be_hasty_or_never_give_up(surface: str) -> None:
    for times in ({"timeout_s": 0.001, "retry_s": 0}, {"retry_s": math.inf}):
        connect(surface, "http://127.0.0.1:9", **times)


def test_address_and_key_come_from_the_environment(
    surface: str, shared: TopicsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_URL", shared.url + "/")
    monkeypatch.setenv("TOPICS_API_KEY", "unused, as the server is open")

    async def scenario() -> None:
        async with connect(surface, None) as server:
            assert server.url == shared.url
            assert (await server.info())["writes"] is True

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicsServer]:
    """A server that wants keys."""
    server = TopicsServer(tmp_path_factory.mktemp("keyed"))
    server.start(TOPICS_API_KEYS="all,some:read+write:mine,writes:write,makes:write+admin")
    yield server
    server.stop()


def test_keys_are_checked(surface: str, keyed: TopicsServer) -> None:
    async def scenario() -> None:
        async with connect(surface, keyed.url, api_key="wrong") as client:
            with pytest.raises(Unauthorized) as unknown:
                await client.info()
            assert (unknown.value.status, unknown.value.code) == (401, "unauthorized")
            assert unknown.value.hint
        async with connect(surface, keyed.url, api_key="some") as client:
            await client.topic("mine").write(1)
            with pytest.raises(Forbidden) as refused:
                await client.topic("theirs").write(1)
            assert refused.value.code == "forbidden"
            with pytest.raises(Forbidden):
                await client.topic("mine").drop()

    asyncio.run(scenario())


def test_a_key_that_may_only_write_does_not_look_first(surface: str, keyed: TopicsServer, name: str) -> None:
    async def scenario() -> None:
        async with (
            connect(surface, keyed.url, api_key="all") as client,
            connect(surface, keyed.url, api_key="writes") as writes,
            connect(surface, keyed.url, api_key="makes") as makes,
        ):
            # It may not make one either, and none is made by chance that is no queue.
            with pytest.raises(Forbidden):
                await writes.queue(name).push("too early")
            assert [topic async for topic in client.list_topics(name)] == []
            await makes.queue(name).push("first")
            await writes.queue(name).push("second")
            await writes.topic(name, type=str, max_deliveries=5).write("third")
            jobs = await client.queue(name).claim(3)
            assert [job.data for job in jobs] == ["first", "second", "third"]
            with pytest.raises(Forbidden):
                await writes.queue(name).claim()

    asyncio.run(scenario())
