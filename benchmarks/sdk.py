"""The Python SDK beside the bare generator, whose requests are bytes made beforehand; and what reading costs.

The generator writes as in `http_write`: batches of 100 over 16 connections, and single records over 64.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.contenders import Topics
from benchmarks.figures import Bar, Figure, at_least, times_peer
from benchmarks.generator import Job
from benchmarks.load import Load
from benchmarks.payloads import COMPACT, payload
from benchmarks.rounds import Contender, compare, in_turns
from benchmarks.session import Session
from topics import AsyncTopics, Cursor, FileCursor, MemoryCursor, ServerCursor, SqliteCursor
from topics import Topics as Client

AREA = "sdk"
_NAME = "sdk"
# Payloads are made beforehand, as the generator's requests are.
_PAYLOADS = [payload(number) for number in range(10_000)]
_UNDER_WAY = 64

Run = Callable[[float], tuple[int, float]]


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        url = f"http://127.0.0.1:{server.port}"
        try:
            yield _beside(session, server, "writer", _writing(url), 16, 100, times_peer(0.6))
            yield _beside(
                session, server, "64 writes on asyncio", _awaiting(url), _UNDER_WAY, 1, times_peer(0.4)
            )
            server.create((_NAME + "-read",), "disk")
            server.fill(_NAME + "-read", COMPACT, session.sizes.read_records)
            for label, cursor, bar in _cursors(directory):
                yield _reading(session, url, label, cursor, bar)
        finally:
            server.close()


def _beside(
    session: Session, server: Topics, what: str, ours: Run, connections: int, batch: int, bar: Bar
) -> Figure:
    session.say(f"  {what}")

    def prepare() -> None:
        server.drop((_NAME,))
        server.create((_NAME,), "disk")

    prepare()
    plans = [
        [server.write(_NAME, COMPACT, range(index * batch, (index + 1) * batch))]
        for index in range(connections)
    ]
    load = Load(Job(server.port, server.protocol, plans))
    try:
        name = f"{what}, against the generator's {'batches of 100' if batch > 1 else 'single records'}"
        peer = Contender("generator", load.moving(batch), server.pid, prepare)
        return compare(session, AREA, name, Contender("SDK", ours, server.pid, prepare), peer, bar)
    finally:
        load.close()


def _writing(url: str) -> Run:
    def run(seconds: float) -> tuple[int, float]:
        with Client(url) as client:
            began = time.perf_counter()
            with client.topic(_NAME).writer() as writer:
                while time.perf_counter() - began < seconds:
                    for data in _PAYLOADS:
                        writer.write(data)
            return writer.count, time.perf_counter() - began

    return run


def _awaiting(url: str) -> Run:
    async def work(seconds: float) -> tuple[int, float]:
        count = 0
        async with AsyncTopics(url) as client:
            topic = client.topic(_NAME)
            began = time.perf_counter()

            async def one(first: int) -> None:
                nonlocal count
                number = first
                while time.perf_counter() - began < seconds:
                    await topic.write(_PAYLOADS[number % len(_PAYLOADS)])
                    number += 1
                    count += 1

            await asyncio.gather(*(one(index * 100) for index in range(_UNDER_WAY)))
            return count, time.perf_counter() - began

    return lambda seconds: asyncio.run(work(seconds))


def _cursors(directory: Path) -> Iterator[tuple[str, Callable[[int], Cursor | None], Bar | None]]:
    million = at_least(1_000_000)
    yield "without a cursor", lambda _: None, million
    yield "MemoryCursor", lambda _: MemoryCursor(), million
    yield "FileCursor", lambda turn: FileCursor(directory / f"{turn}.cursor"), None
    yield "FileCursor, every=100", lambda turn: FileCursor(directory / f"{turn}.100", every=100), None
    yield "SqliteCursor, every=1000", lambda turn: SqliteCursor(directory / "db", f"{turn}", every=1000), None
    yield "ServerCursor, every=1000", lambda turn: ServerCursor(f"{turn}", every=1000), None


def _reading(session: Session, url: str, label: str, cursor: Callable[[int], Any], bar: Bar | None) -> Figure:
    name = f"read, {label}"
    session.say(f"  {name}")
    turns = iter(range(1_000_000))

    def run(seconds: float) -> tuple[int, float]:
        count = 0
        began = time.perf_counter()
        with Client(url) as client:
            topic = client.topic(_NAME + "-read")
            while (elapsed := time.perf_counter() - began) < seconds:
                for _ in topic.read(cursor(next(turns))):
                    count += 1
        return count, elapsed

    reader = Contender("SDK", run)
    in_turns(session, (reader,))
    return Figure(AREA, name, reader.rate, "records/s", bar=bar, spread=reader.spread)
