"""What a reader of a high-priority topic notices of low-priority writers that bring four times too much.

Sixteen connections keep the server busy all the time; here there are four times as many. The reader is
measured alone and under load in turn, in one run, so the ratio counts and not the machine. Then the records
that were acknowledged are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread

from benchmarks.contenders import Sender, Topics
from benchmarks.figures import Figure, at_most
from benchmarks.generator import Job, Tally
from benchmarks.load import Load
from benchmarks.payloads import COMPACT
from benchmarks.rounds import settle
from benchmarks.session import Session

AREA = "overload"
_SATURATING = 16
_OVERLOAD = 4
_TOPICS = 4
_PAGE = 100
# Paced, so that the reader itself is no load.
_PAUSE_S = 0.004
# Records in a write.
_BATCHES = (1, 100)


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        try:
            server.server.put("/v0/topics/high", {"priority": 900})
            server.fill("high", COMPACT, 1000)
            for batch in _BATCHES:
                yield from _measure(session, server, batch)
        finally:
            server.close()


def _measure(session: Session, server: Topics, batch: int) -> Iterator[Figure]:
    name = f"p99 of a high-priority reader under {_OVERLOAD} × overload, low-priority writes of {batch}"
    session.say(f"  {name}")
    names = [f"low-{batch}-{number}" for number in range(_TOPICS)]
    for topic in names:
        server.server.put(f"/v0/topics/{topic}", {"priority": -500})
    idle: list[float] = []
    loaded: list[float] = []
    with server.connection() as send:
        _read(server, send, session.sizes.round_s / 4)
        overload = _load(server, names, batch, _SATURATING * _OVERLOAD)
        replies = 0
        for _ in range(session.sizes.rounds):
            # What the last round left to do is not idleness.
            settle(server.pid, session.sizes.settle_s)
            idle += _read(server, send, session.sizes.round_s)
            tally = _under(overload, session.sizes.round_s, lambda s: loaded.extend(_read(server, send, s)))
            replies += tally.replies
        overload.close()
    heads = sum(server.server.get(f"/v0/topics/{topic}")["head_seq"] for topic in names)
    # Those still under way at the end of a round are answered too, and counted by nobody.
    outstanding = _SATURATING * _OVERLOAD * session.sizes.rounds * batch
    if not replies * batch <= heads <= replies * batch + outstanding:
        raise AssertionError(f"{replies * batch} records were acknowledged, {heads} are there")
    yield Figure(
        AREA,
        name,
        percentile(loaded, 0.99) / percentile(idle, 0.99),
        "× idle",
        bar=at_most(3.0),
        note=f"idle {_shown(idle)}; loaded {_shown(loaded)}",
    )


def _load(server: Topics, names: list[str], batch: int, connections: int) -> Load:
    requests = [server.write(name, COMPACT, range(1, batch + 1)) for name in names]
    jobs = [[requests[number % len(requests)]] for number in range(connections)]
    return Load(Job(port=server.port, protocol="http", connections=jobs), gives_way=True)


def _under(load: Load, seconds: float, work: Callable[[float], None]) -> Tally:
    """The load's tally for the time that `work(seconds)` takes."""
    tallies: list[Tally] = []
    writers = Thread(target=lambda: tallies.append(load.run(seconds * 1.2)))
    writers.start()
    # Until the writers are in full swing.
    time.sleep(seconds * 0.1)
    work(seconds)
    writers.join()
    return tallies[0]


def _read(server: Topics, send: Sender, seconds: float) -> list[float]:
    """How long each read took."""
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    request = server.read("high", 400, _PAGE, COMPACT)
    while time.perf_counter() < deadline or not taken:
        started = time.perf_counter()
        send(request)
        taken.append(time.perf_counter() - started)
        time.sleep(_PAUSE_S)
    return taken


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _shown(values: list[float]) -> str:
    p50, p99 = (percentile(values, share) * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms of {len(values)}"
