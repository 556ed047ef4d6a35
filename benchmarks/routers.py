"""Routers: what a source's writers notice of its destinations, and how fast copies are made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.contenders import Topics, http_request
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.payloads import COMPACT
from benchmarks.session import Session

AREA = "routers"
_MANY = 100
_PACED_WRITES_PER_S = 100
_BATCH = 100


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        try:
            yield _acknowledgement(session, server)
            yield _copies(session, server)
            yield _frames(session, server)
        finally:
            server.close()


def _connect(server: Topics, source: str, destinations: int) -> list[str]:
    names = [f"{source}-copy-{number}" for number in range(destinations)]
    server.create([source], "disk")
    for name in names:
        body = {"source": source, "dest": name}
        answer = server.server.request("PUT", f"/v0/routers/{name}", body)
        assert answer.status < 300, answer.text
    return names


def _wait_for(server: Topics, names: Sequence[str], head: int) -> None:
    for name in names:
        while server.server.get(f"/v0/topics/{name}")["head_seq"] < head:
            time.sleep(0.002)


def _acknowledgement(session: Session, server: Topics) -> Figure:
    """Paced, so that making the copies has its time between the writes: in turns, with and without."""
    session.say(f"  acknowledgement with 0 and {_MANY} destinations")
    _connect(server, "lonely", 0)
    _connect(server, "copied", min(_MANY, session.sizes.destinations))
    times: dict[str, list[float]] = {"lonely": [], "copied": []}
    for _ in range(session.sizes.rounds * 2):
        for source, spent in times.items():
            spent.append(_median_answer_s(server, source, session.sizes.round_s / 2))
    alone, copied = median(times["lonely"]), median(times["copied"])
    return Figure(
        AREA,
        f"time to acknowledge a write, {_MANY} destinations against none",
        copied / alone,
        "×",
        bar=at_most(1.05),
        note=f"{alone * 1e6:.0f} µs and {copied * 1e6:.0f} µs, medians at {_PACED_WRITES_PER_S} writes/s",
    )


def _median_answer_s(server: Topics, source: str, seconds: float) -> float:
    request = server.write(source, COMPACT, range(1))
    spent: list[float] = []
    with server.connection() as send:
        send(request)
        deadline = time.perf_counter() + seconds
        while (started := time.perf_counter()) < deadline:
            send(request)
            spent.append(time.perf_counter() - started)
            time.sleep(1 / _PACED_WRITES_PER_S)
    return median(spent or [seconds])


def _copies(session: Session, server: Topics) -> Figure:
    destinations = min(_MANY, session.sizes.destinations)
    session.say(f"  copies to {destinations} destinations")
    names = _connect(server, "source", destinations)
    writes = max(session.sizes.local_records // (_BATCH * 10), 2)
    rates = []
    head = 0
    with server.connection() as send:
        for _ in range(session.sizes.rounds):
            request = server.write("source", COMPACT, range(_BATCH))
            started = time.perf_counter()
            for _ in range(writes):
                send(request)
            head += writes * _BATCH
            _wait_for(server, names, head)
            rates.append(writes * _BATCH * destinations / (time.perf_counter() - started))
    return Figure(
        AREA,
        f"copies, batches of {_BATCH} to {destinations} destinations",
        median(rates),
        "records/s",
        bar=at_least(500_000),
        spread=(min(rates), max(rates)),
    )


def _frames(session: Session, server: Topics) -> Figure:
    destinations = session.sizes.destinations
    session.say(f"  one record to {destinations} destinations")
    names = _connect(server, "fan", destinations)
    _wait_for(server, names, 0)
    before = server.journal()["frames"]
    with server.connection() as send:
        send(http_request("/v0/topics/fan", b'{"records":[{"data":1}]}'))
    _wait_for(server, names, 1)
    return Figure(
        AREA,
        f"journal frames for one record to {destinations} destinations",
        server.journal()["frames"] - before,
        "frames",
        bar=at_most(1),
    )
