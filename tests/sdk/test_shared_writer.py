"""A writer loses and repeats nothing: shared by threads, one held up anywhere; over a fork; cancelled."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from tests.sdk.both import run_script
from topics import AsyncTopics, Topics
from topics.client.operations import writing
from topics.testing import TopicsServer

# How long a thread that is held up leaves to the other one, which may have to wait for it.
HELD_UP_S = 0.02


class HeldUp:
    """Runs a call, and at its nth line in the module of writers lets `meanwhile` go first, on a thread.

    Where a record is added, at its nth step: a thread may be held up in the middle of a line.
    """

    def __init__(self, nth: int, meanwhile: Callable[[], Any]) -> None:
        self._left = nth
        self._other = threading.Thread(target=meanwhile)
        self.was_held_up = False

    def run(self, call: Callable[[], Any]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)
        if self.was_held_up:
            self._other.join()

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != writing.__file__:
            return None
        frame.f_trace_opcodes = frame.f_code is writing.Batching.add.__code__
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == ("opcode" if frame.f_trace_opcodes else "line"):
            self._left -= 1
            if self._left == 0:
                self.was_held_up = True
                self._other.start()
                self._other.join(HELD_UP_S)
        return self._line


def test_threads_share_a_writer_wherever_one_is_held_up(client: Topics, name: str) -> None:
    topic = client.topic(name)
    given: list[str] = []
    with topic.writer(linger_ms=60_000) as writer:

        def other() -> None:
            writer.write(f"{nth} meanwhile")
            writer.flush()

        def one() -> None:
            writer.write(f"{nth} first")
            writer.write(f"{nth} second")
            ack = writer.flush()
            assert ack is not None

        nth, was_held_up = 0, True
        while was_held_up:
            nth += 1
            held_up = HeldUp(nth, other)
            held_up.run(one)
            was_held_up = held_up.was_held_up
            given += [f"{nth} first", f"{nth} second"] + [f"{nth} meanwhile"] * was_held_up
    written = [record.data for record in topic.read()]
    assert sorted(written) == sorted(given)
    assert writer.count == len(given)
    for number in range(1, nth + 1):
        assert written.index(f"{number} first") < written.index(f"{number} second")


FORKED_WITH_A_WRITER = """
import os, sys
from topics import Topics
server = Topics(sys.argv[1])
topic = server.topic(sys.argv[2])
with topic.writer(linger_ms=60_000) as writer:
    writer.write("sent before")
    writer._io.run(writer._batching.send())  # its answer is still to come
    writer.write("given before")
    child = os.fork()
    writer.write("child" if child == 0 else "parent")
if child:
    print(os.waitstatus_to_exitcode(os.wait()[1]), writer.count)
"""


def test_what_a_writer_had_before_a_fork_is_written_once(
    shared: TopicsServer, client: Topics, name: str
) -> None:
    assert run_script(FORKED_WITH_A_WRITER, shared.url, name) == "0 3"
    written = [record.data for record in client.topic(name).read()]
    assert sorted(written) == ["child", "given before", "parent", "sent before"]


def test_a_crowd_of_threads_makes_no_batch_too_large(client: Topics, name: str) -> None:
    """Each has added one record by the time it waits for its turn."""
    topic = client.topic(name)
    with topic.writer(batch_bytes=1000, linger_ms=60_000) as writer, ThreadPoolExecutor(16) as pool:
        list(pool.map(writer.write, ["x" * 400] * 300))
        writer.flush()
        batching = writer._batching
        # As if all of them had come at once.
        batching._rows.extend([b'"%b"' % (b"y" * 400)] * 20)
        body, count = batching._take("key")
        assert count == 3
        assert len(body) < 1000 + 420 + 256
        batching._rows.clear()
    assert writer.count == 300
    assert len(list(topic.read())) == 300


def test_a_batch_whose_sender_is_cancelled_is_written_all_the_same(shared: TopicsServer, name: str) -> None:
    """Its records may be those of other tasks. It is repeated under its key."""

    async def scenario() -> None:
        async with AsyncTopics(shared.url) as server:
            topic = server.topic(name)
            async with topic.writer(linger_ms=60_000) as writer:
                for turns in range(12):
                    await writer.write({"turns": turns})
                    flush = asyncio.ensure_future(writer.flush())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    flush.cancel()
                    await asyncio.wait([flush])
            assert writer.count == 12
            assert [record.data["turns"] async for record in topic.read()] == list(range(12))

    asyncio.run(scenario())
