"""Retries are safe: a write is repeated under its key, and what is not known is said."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.sdk.both import connect
from tests.sdk.faults import answer, proxy, refusal, telling
from topics import Refused, Topics, Uncertain, Unreachable
from topics.testing import TopicsServer

ACK = answer(200, b'{"topic":"t","epoch":1,"first_seq":1,"last_seq":1,"count":1,"deduped":false}')


def on(surface: str, url: str, scenario: Any, **more: Any) -> None:
    async def whole() -> None:
        async with connect(surface, url, **more) as server:
            await scenario(server)

    asyncio.run(whole())


def test_never_connected_is_unreachable(surface: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def scenario(server: Any) -> None:
        for call in (server.topic("t").write(1), server.info()):
            with pytest.raises(Unreachable) as failed:
                await call
            assert failed.value.code == "unreachable"

    on(surface, url, scenario, retry_s=0.1)


def test_an_answer_that_got_lost_is_asked_for_again(surface: str, shared: TopicsServer, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        for number in range(5):
            between.swallow = number % 3
            await topic.write(number)
        between.swallow = 1
        await topic.write_many([5, 6])
        async with topic.writer(batch_bytes=20) as writer:
            for number in range(7, 40):
                between.swallow = number % 2
                await writer.write(number)
        between.swallow = 2
        assert [record.data async for record in topic.read()] == list(range(40))

    with proxy(shared.url) as between:
        on(surface, between.url, scenario)
        assert between.swallowed > 5


def test_a_topic_that_was_made_unheard_is_made(surface: str, shared: TopicsServer, name: str) -> None:
    async def scenario(server: Any) -> None:
        between.swallow = 1
        assert (await server.topic(name).create(cap_records=5)).created is True
        with pytest.raises(Refused) as refused:
            await server.topic(name).create(cap_records=5)
        assert refused.value.code == "topic_exists"

    with proxy(shared.url) as between:
        on(surface, between.url, scenario)


def test_what_became_of_it_is_not_known(surface: str, shared: TopicsServer, name: str) -> None:
    async def scenario(server: Any) -> None:
        between.swallow = 1_000_000
        with pytest.raises(Uncertain) as uncertain:
            await server.topic(name).write("x")
        assert uncertain.value.code == "uncertain"
        between.swallow = 0
        again = await server.topic(name).write("x", idempotency_key=uncertain.value.idempotency_key)
        assert (again.deduped, again.seq) == (True, 1)

    with proxy(shared.url) as between:
        on(surface, between.url, scenario, retry_s=0.2)


def test_a_key_that_may_be_forgotten_is_not_used_again(
    surface: str, shared: TopicsServer, client: Topics, name: str
) -> None:
    client.topic(name).create(idempotency_window_ms=1)

    async def scenario(server: Any) -> None:
        between.swallow = 1
        with pytest.raises(Uncertain):
            await server.topic(name).write("x")

    with proxy(shared.url) as between:
        on(surface, between.url, scenario)
    assert client.topic(name).describe().head_seq == 1


@pytest.mark.parametrize("status", [429, 503])
def test_refusals_that_pass_are_waited_out(surface: str, status: int) -> None:
    async def scenario(server: Any) -> None:
        assert (await server.topic("t").write(1)).seq == 1

    with telling(refusal(status, "throttled"), refusal(status, "throttled"), ACK) as url:
        on(surface, url, scenario)


@pytest.mark.parametrize("status", [429, 503])
def test_refusals_that_stay_are_told_in_the_end(surface: str, status: int) -> None:
    async def scenario(server: Any) -> None:
        with pytest.raises(Refused) as refused:
            await server.topic("t").write(1)
        assert (refused.value.status, refused.value.code) == (status, "throttled")

    with telling(refusal(status, "throttled", "Retry-After: 100")) as url:
        on(surface, url, scenario, retry_s=0.1)


@pytest.mark.parametrize(("status", "code"), [(507, "disk_full"), (422, "topic_full"), (500, "internal")])
def test_other_refusals_are_told_at_once(surface: str, status: int, code: str) -> None:
    async def scenario(server: Any) -> None:
        async with asyncio.timeout(60):
            with pytest.raises(Refused) as refused:
                await server.topic("t").write(1)
        assert (refused.value.status, refused.value.code) == (status, code)
        assert refused.value.request_id == "17"

    with telling(refusal(status, code, "X-Request-Id: 17")) as url:
        on(surface, url, scenario, retry_s=600)


def test_silence_is_not_waited_for_forever(surface: str) -> None:
    async def scenario(server: Any) -> None:
        with pytest.raises(Uncertain):
            await server.topic("t").write(1)
        with pytest.raises(Unreachable):
            await server.info()

    with telling(b"") as url:
        on(surface, url, scenario, timeout_s=1, retry_s=0)


@pytest.mark.parametrize(
    "nonsense", [b"SSH-2.0-OpenSSH\r\n", answer(200, b"<html>"), answer(502, b"<html>bad gateway")]
)
def test_something_else_that_answers(surface: str, nonsense: bytes) -> None:
    async def scenario(server: Any) -> None:
        with pytest.raises((Refused, Unreachable)):
            await server.info()
        with pytest.raises((Refused, Uncertain)):
            await server.topic("t").write(1)

    with telling(nonsense) as url:
        on(surface, url, scenario, retry_s=0.1)


def test_writers_and_readers_go_on_over_a_crash(topics_server: TopicsServer, surface: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic("orders")
        stopped = asyncio.Event()

        async def write() -> int:
            async with topic.writer(batch_bytes=200) as writer:
                number = 0
                while not stopped.is_set() or number < 50:
                    await writer.write(number)
                    number += 1
                    await asyncio.sleep(0.001)
            return number

        writing = asyncio.ensure_future(write())
        for kill in (True, False):
            await asyncio.to_thread(topics_server.restart, kill)
        stopped.set()
        count = await writing
        assert [record.data async for record in topic.read()] == list(range(count))

    on(surface, topics_server.url, scenario, retry_s=100)


def test_a_job_that_was_acked_unheard_is_done(surface: str, shared: TopicsServer, name: str) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name)
        await queue.push(1)
        async with queue.job(lease_ms=60_000):
            between.swallow = 0
            await asyncio.sleep(0)
            between.swallow = 1
        assert (await queue.describe()).count == 0

    with proxy(shared.url) as between:
        on(surface, between.url, scenario)
