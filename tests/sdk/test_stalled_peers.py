"""Before a peer that stands still, nobody gathers what cannot be moved on."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.sdk.both import connect
from tests.sdk.conftest import Play
from topics import AsyncTopics, Topics, TopicsError

MIB = 1 << 20
BOUND = 64 * MIB
RECORD = {"text": "x" * 10_000}


@contextmanager
def growth() -> Iterator[Callable[[], int]]:
    """The most that was allocated since, which needs no garbage to be collected first."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@contextmanager
def deaf() -> Iterator[str]:
    """A peer that lets everybody in and never reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def write_all(writer: Any, count: int) -> None:
    for _ in range(count):
        await writer.write(RECORD)


def test_a_writer_waits_for_a_peer_that_does_not_read(surface: str) -> None:
    async def scenario(url: str) -> None:
        async with (
            connect(surface, url, timeout_s=0.2, retry_s=0) as server,
            server.topic("stalled").writer() as writer,
        ):
            await write_all(writer, 30_000)  # 300 MB

    with deaf() as url, growth() as grown:
        with pytest.raises(TopicsError):
            asyncio.run(scenario(url))
        assert grown() < BOUND


def test_many_tasks_that_share_a_writer_wait_as_well() -> None:
    async def scenario(url: str) -> None:
        async with (
            AsyncTopics(url, timeout_s=0.2, retry_s=0) as server,
            server.topic("stalled").writer() as writer,
        ):
            await asyncio.gather(*(write_all(writer, 1) for _ in range(15_000)))  # 150 MB

    with deaf() as url, growth() as grown:
        with pytest.raises(TopicsError):
            asyncio.run(scenario(url))
        assert grown() < BOUND


@pytest.mark.parametrize(
    ("how", "choice"),
    [("read", {"tag": "t"}), ("tail", {"from_seq": 0})],
    ids=["some", "following"],
)
def test_a_reader_asks_for_no_more_than_it_hands_out(
    client: Topics, play: Play, name: str, how: str, choice: dict[str, Any]
) -> None:
    topic = client.topic(name)
    # Objects take up to twenty times as much room as their text: all of these would be above the bound.
    with topic.writer() as writer:
        for _ in range(1000):
            writer.write({"n": [{} for _ in range(1000)]}, tag="t")

    async def scenario(server: Any) -> int:
        records = getattr(server.topic(name), how)(**choice)
        with growth() as grown:
            seen = 0
            async for _ in records:
                seen += 1
                if seen == 300:
                    break
            await records.aclose()
            return grown()

    assert play(scenario) < BOUND


def test_the_tests_own_measure_sees_what_is_gathered() -> None:
    with growth() as grown:
        kept = [bytes(MIB) for _ in range(70)]
        assert grown() > BOUND
    del kept
