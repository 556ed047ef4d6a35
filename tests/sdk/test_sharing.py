"""Threads and forks share a client, no thread is there unasked, and a peer that stalls costs little."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sdk.both import connect, run_script
from topics import AsyncTopics, ServerCursor, Topics, Uncertain, Unreachable
from topics.testing import TopicsServer

BOUND = 64 << 20


def test_threads_share_a_client(client: Topics, name: str) -> None:
    topic = client.topic(name)
    with ThreadPoolExecutor(8) as pool:
        acks = list(pool.map(topic.write, range(200)))
    assert sorted(ack.seq for ack in acks) == list(range(1, 201))
    assert sorted(record.data for record in topic.read()) == list(range(200))


SHARED_OVER_A_FORK = """
import os, sys
from topics import Topics
server = Topics(sys.argv[1])
topic = server.topic(sys.argv[2])
topic.write("parent")  # leaves a connection open
for number in range(3):
    if os.fork() == 0:
        for _ in range(20):
            topic.write(f"child {number}")
        os._exit(0)
for _ in range(20):
    topic.write("parent")
print([os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(3)])
"""


def test_forks_share_a_client(shared: TopicsServer, client: Topics, name: str) -> None:
    assert run_script(SHARED_OVER_A_FORK, shared.url, name) == "[0, 0, 0]"
    written = [record.data for record in client.topic(name).read()]
    assert {who: written.count(who) for who in set(written)} == {
        "parent": 21,
        **{f"child {number}": 20 for number in range(3)},
    }


FORKED_WITH_MORE = """
import os, sys
from topics import RecordsLost, ServerCursor, Topics
server = Topics(sys.argv[1])
topic, jobs = server.topic(sys.argv[2]), server.queue(sys.argv[3])
reader = topic.read(ServerCursor("forked", every=10_000))
read = [next(reader).seq for _ in range(500)]  # the next page is under way
try:
    jobs.claim(max=2)
except RecordsLost:
    pass  # and two jobs have come with the news
if os.fork() == 0:
    mine = read + [record.seq for record in reader]
    server.close()  # gives no job back that the parent holds
    sys.exit(0 if mine == list(range(1, 3001)) else 1)
status = os.waitstatus_to_exitcode(os.wait()[1])
held = jobs.claim(max=2)
if os.fork() == 0:
    held[0].ack()  # a process that was forked to do the job
    os._exit(0)
os.wait()
held[1].ack()
print(status, read + [record.seq for record in reader] == list(range(1, 3001)), len(held))
"""


def test_readers_and_jobs_go_on_behind_a_fork(shared: TopicsServer, client: Topics, name: str) -> None:
    client.topic(name).write_many(range(3000))
    queue = client.queue(name + "-jobs")
    for number in range(5):
        queue.push(number)
    shared.lose(name + "-jobs", 2)
    assert run_script(FORKED_WITH_MORE, shared.url, name, name + "-jobs") == "0 True 2"
    assert [job.deliveries for job in queue.claim(max=5)] == [1]


def test_loops_of_several_threads_share_a_client(shared: TopicsServer, name: str) -> None:
    """Each has connections of its own, and none is used from another thread."""
    server = AsyncTopics(shared.url)
    together = threading.Barrier(4)

    async def scenario() -> list[int]:
        topic = server.topic(name)
        seqs = []
        for number in range(20):
            together.wait(60)
            seqs += [ack.seq for ack in await asyncio.gather(*(topic.write(number) for _ in range(3)))]
        await server.close()
        return seqs

    with ThreadPoolExecutor(4) as pool:
        seqs = [seq for done in pool.map(asyncio.run, [scenario() for _ in range(4)]) for seq in done]
    assert sorted(seqs) == list(range(1, 241))


def test_a_client_serves_one_loop_after_the_other(shared: TopicsServer, name: str) -> None:
    server = AsyncTopics(shared.url)

    async def scenario() -> int:
        acks = await asyncio.gather(*(server.topic(name).write(number) for number in range(150)))
        await server.close()  # ends what is open; the next loop opens its own
        return len({ack.seq for ack in acks})

    for _ in range(2):
        assert asyncio.run(scenario()) == 150


def test_a_closed_client_says_so(surface: str, shared: TopicsServer, name: str) -> None:
    async def scenario() -> None:
        client = connect(surface, shared.url)
        topic, jobs = client.topic(name), client.queue(name + "-jobs")
        await topic.write(1)
        await jobs.push(1)
        (job,) = await jobs.claim()
        for _ in range(2):  # closing again does no harm
            await client.close()
        for call in (
            lambda: topic.write(2),
            lambda: topic.get(1),
            lambda: topic.describe(),
            lambda: jobs.claim(),
            lambda: job.ack(),
            lambda: client.info(),
        ):
            with pytest.raises(RuntimeError, match="closed"):
                await call()
        for iterate in (topic.read, topic.tail, topic.items, topic.ledger, client.routers):
            with pytest.raises(RuntimeError, match="closed"):
                async for _ in iterate():
                    pass

    asyncio.run(scenario())
    with Topics(shared.url) as other:
        assert other.topic(name).describe().count == 1


def test_a_reader_that_ends_behind_its_client_stores_where_it_is(
    surface: str, shared: TopicsServer, client: Topics, name: str
) -> None:
    client.topic(name).write_many([1, 2, 3])

    async def scenario() -> None:
        cursor = ServerCursor("late", every=100)
        closed = connect(surface, shared.url)
        reader = closed.topic(name).read(cursor)
        assert [(await anext(reader)).seq for _ in range(3)] == [1, 2, 3]
        await closed.close()
        await reader.aclose()

    asyncio.run(scenario())
    assert [found.seq for found in client.topic(name).cursors()] == [2]


def test_no_thread_is_started_unasked(client: Topics, name: str) -> None:
    before = threading.active_count()
    topic, queue = client.topic(name), client.queue(name + "-jobs")
    topic.write(1)
    with topic.writer() as writer:
        writer.write(2)
    list(topic.read())
    list(topic.tail(from_seq=0, idle_s=0))
    queue.push(1)
    queue.claim()[0].ack()
    assert threading.active_count() == before


# --- a peer that stalls -------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_writer_does_not_grow_before_a_server_that_stalls(surface: str) -> None:
    """It takes what one or two batches hold, and then lets its caller wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        record = "x" * 10_000
        given = 0

        async def scenario() -> None:
            nonlocal given
            async with connect(surface, url, timeout_s=1, retry_s=0) as server:
                writer = server.topic("t").writer(linger_ms=60_000)
                while given < 20_000:  # 200 MB
                    await writer.write(record)
                    given += 1

        before = resident_bytes()
        with pytest.raises((Uncertain, Unreachable)):
            asyncio.run(scenario())
        assert resident_bytes() - before < BOUND
        assert given < 2000


def test_a_reader_takes_no_more_than_it_is_asked_for(
    surface: str, shared: TopicsServer, client: Topics, name: str
) -> None:
    """The program stalls instead: what was not asked for stays at the server."""
    with client.topic(name).writer() as writer:
        for _ in range(8_000):  # 80 MB
            writer.write("x" * 10_000)

    async def scenario(kind: str) -> int:
        async with connect(surface, shared.url) as server:
            topic = server.topic(name)
            records = topic.read() if kind == "read" else topic.tail(from_seq=0)
            await anext(records)
            before = resident_bytes()
            for _ in range(20):
                await asyncio.sleep(0.01)
            grown = resident_bytes() - before
            await records.aclose()
            return grown

    for kind in ("read", "tail"):
        before = resident_bytes()
        asyncio.run(scenario(kind))
        assert resident_bytes() - before < BOUND
    client.topic(name).drop()
