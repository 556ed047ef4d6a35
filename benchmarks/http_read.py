"""Reads over HTTP against XRANGE: 1,000 records a request, pages all over four topics.

Measured twice. Counting: the generator only looks where each reply ends, so the server is what is measured.
Verifying: every record of every reply is decoded with msgspec and checked, so the reader is most of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.contenders import Redis, Topics
from benchmarks.figures import Bar, Figure, times_peer
from benchmarks.generator import Job, Request
from benchmarks.load import Load
from benchmarks.payloads import COMPACT, DELETED, NAMED, SPACED, Shape
from benchmarks.rounds import Contender, compare
from benchmarks.session import Session

AREA = "http_read"
_CONNECTIONS = 4
_TOPICS = 4
_LIMIT = 1000
_PAGES = 16
_BARS = {COMPACT: times_peer(2.7), DELETED: times_peer(2.0)}


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        ours, peer = Topics(directory / "topics"), Redis(directory / "redis", "everysec")
        try:
            for shape in (COMPACT, SPACED, NAMED, DELETED):
                yield from _shape(session, ours, peer, shape)
        finally:
            ours.close()
            peer.close()


def _shape(session: Session, ours: Topics, peer: Redis, shape: Shape) -> Iterator[Figure]:
    names = [f"{shape.name.replace(' ', '-').replace('%', 'of')}-{number}" for number in range(_TOPICS)]
    session.say(f"  filling {_TOPICS} topics, {shape.name}")
    for server in (ours, peer):
        for name in names:
            server.fill(name, shape, session.sizes.read_records)
    # An idle server seals what was written; readers find it in memory all the same.
    yield _measure(session, ours, peer, names, shape, _BARS.get(shape), verify=False)
    if shape in (COMPACT, DELETED):
        yield _measure(session, ours, peer, names, shape, None, verify=True)
    ours.drop(names)
    peer.drop(names)


def _measure(
    session: Session,
    ours: Topics,
    peer: Redis,
    names: list[str],
    shape: Shape,
    bar: Bar | None,
    *,
    verify: bool,
) -> Figure:
    name = (
        f"diff of {_LIMIT}, {_CONNECTIONS} connections, {shape.name}, {'verifying' if verify else 'counting'}"
    )
    session.say(f"  {name}")
    loads = [Load(_job(session, server, names, shape, verify=verify)) for server in (ours, peer)]
    runs = [load.verifying() if verify else load.moving(_LIMIT) for load in loads]
    try:
        return compare(
            session,
            AREA,
            name,
            Contender("topics", runs[0], ours.pid),
            Contender(f"{peer.label}, XRANGE", runs[1], peer.pid),
            bar,
        )
    finally:
        for load in loads:
            load.close()


def _job(session: Session, server: Topics | Redis, names: list[str], shape: Shape, *, verify: bool) -> Job:
    last_start = session.sizes.read_records - 2 * _LIMIT
    # Not on the boundaries of anything, neither of our runs nor of Redis's nodes.
    starts = [(page * 7919) % (last_start + 1) for page in range(_PAGES)]
    pages: list[Request] = [server.read(name, start, _LIMIT, shape) for start in starts for name in names]
    shift = len(pages) // _CONNECTIONS
    plans = [pages[shift * index :] + pages[: shift * index] for index in range(_CONNECTIONS)]
    entry_lines = server.lines_of(shape) if isinstance(server, Redis) else 0
    return Job(server.port, server.protocol, plans, verify=verify, entry_lines=entry_lines)
