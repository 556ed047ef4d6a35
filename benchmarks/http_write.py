"""Batches over HTTP against XADD: many connections, 100 records a request; single appends are in `shapes`.

How requests vary: there are four topics; every second connection stays with one of them, the others go round
all four, so that half the requests have the head of the one before and half have not. Redis gets the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.beside_redis import BARS, BATCHES, BATCHES_SYNCED, NAMED_BATCHES, Case
from benchmarks.contenders import Redis, Topics
from benchmarks.figures import Bar, Figure, at_most
from benchmarks.generator import Job, Request
from benchmarks.load import Load
from benchmarks.payloads import SHORT, SPACED, Shape
from benchmarks.rounds import Contender, compare, in_turns
from benchmarks.session import Session

AREA = "http_write"
# By what of Redis they are compared with.
_CASES = {
    "everysec": (BATCHES, BATCHES._replace(shape=SPACED), NAMED_BATCHES),
    "always": (BATCHES_SYNCED,),
}
# Records a request, and the server's processor time for one of them: at most, in microseconds.
_PROCESSOR_TIME = ((100, at_most(1.1)), (1000, at_most(0.8)))
_NAMES = tuple(f"bench-{number}" for number in range(4))


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        ours = Topics(directory / "topics")
        try:
            for appendfsync in _CASES:
                yield from _against(session, directory, ours, appendfsync)
            for batch, bar in _PROCESSOR_TIME:
                yield _processor_time(session, ours, batch, bar)
        finally:
            ours.close()


def _against(session: Session, directory: Path, ours: Topics, appendfsync: str) -> Iterator[Figure]:
    peer = Redis(directory / appendfsync, appendfsync)
    try:
        for case in _CASES[appendfsync]:
            yield _measure(session, ours, peer, case)
    finally:
        peer.close()


def _measure(session: Session, ours: Topics, peer: Redis, case: Case) -> Figure:
    name = f"{case}, {case.shape.name}"
    session.say(f"  {name}")

    def prepare_ours() -> None:
        ours.drop(_NAMES)
        ours.create(_NAMES, case.durability)

    def prepare_peer() -> None:
        peer.drop(_NAMES)

    prepare_ours()
    loads = [Load(_job(server, case.shape, case.connections, case.batch)) for server in (ours, peer)]
    try:
        return compare(
            session,
            AREA,
            name,
            Contender("topics", loads[0].moving(case.batch), ours.pid, prepare_ours),
            Contender(peer.label, loads[1].moving(case.batch), peer.pid, prepare_peer),
            BARS.get(case),
        )
    finally:
        for load in loads:
            load.close()


def _processor_time(session: Session, ours: Topics, batch: int, bar: Bar) -> Figure:
    """Of the whole process, with what it does in the background until it is quiet again."""
    name = f"processor time, batches of {batch}, 16 connections, disk, {SHORT.name}"
    session.say(f"  {name}")

    def prepare() -> None:
        ours.drop(_NAMES)
        ours.create(_NAMES, "disk")

    prepare()
    load = Load(_job(ours, SHORT, 16, batch))
    try:
        contender = Contender("topics", load.moving(batch), ours.pid, prepare)
        in_turns(session, [contender])
    finally:
        load.close()
    spent = [seconds * 1e6 for seconds in contender.cpu_per_record] or [0.0]
    return Figure.of_rounds(AREA, name, spent, "µs per record", bar=bar)


def _job(server: Topics | Redis, shape: Shape, connections: int, batch: int) -> Job:
    plans: list[list[Request]] = []
    for index in range(connections):
        stays = index % 2 == 0
        names = [_NAMES[index // 2 % len(_NAMES)]] * len(_NAMES) if stays else list(_NAMES)
        first = index * len(names) * batch
        starts = range(first, first + len(names) * batch, batch)
        plans.append(
            [
                server.write(name, shape, range(start, start + batch))
                for name, start in zip(names, starts, strict=True)
            ]
        )
    return Job(server.port, server.protocol, plans)
