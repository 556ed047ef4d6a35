"""Routers: what a source's writers notice of its destinations, and how fast copies are made.

Nobody reads a destination while copies are counted: a reader would have them made on the spot, before the
background gets to it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks.contenders import Topics, cpu_seconds, http_request
from benchmarks.figures import Figure, at_least, at_most, per_cpu_second
from benchmarks.payloads import COMPACT
from benchmarks.session import Session
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.journal_reader import read_frame

AREA = "routers"
_MANY = 100
_PACED_WRITES_PER_S = 100
_BATCH = 100
_LAG = re.compile(r"^topics_router_lag_max (\S+)", re.MULTILINE)


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        try:
            yield _acknowledgement(session, server)
            yield _copies(session, server)
            yield from _fan(session, server, directory)
        finally:
            server.close()


def _connect(server: Topics, source: str, destinations: int) -> list[str]:
    names = [f"{source}-copy-{number}" for number in range(destinations)]
    server.create([source], "disk")
    for name in names:
        body = {"source": source, "dest": name}
        server.put(f"/v0/routers/{name}", body)
    return names


def _wait_until_forwarded(server: Topics) -> None:
    while True:
        metrics = server.server.request("GET", "/v0/metrics", headers={"Accept": "text/plain"}).text
        found = _LAG.search(metrics)
        assert found is not None, metrics
        if not float(found[1]):
            return
        # Asking takes the server's time as well.
        time.sleep(0.05)


def _check(server: Topics, names: Sequence[str], head: int) -> None:
    for name in names:
        assert server.server.get(f"/v0/topics/{name}")["head_seq"] == head, name


def _acknowledgement(session: Session, server: Topics) -> Figure:
    """Paced, so that making the copies has its time between the writes: in turns, with and without."""
    destinations = min(_MANY, session.sizes.destinations)
    session.say(f"  acknowledgement with 0 and {destinations} destinations")
    _connect(server, "lonely", 0)
    _connect(server, "copied", destinations)
    medians: dict[str, list[float]] = {"lonely": [], "copied": []}
    times: dict[str, list[float]] = {"lonely": [], "copied": []}
    for _ in range(session.sizes.rounds * 2):
        for source, spent in times.items():
            answers = _answers_s(server, source, session.sizes.round_s / 2)
            medians[source].append(median(answers))
            spent += answers
    alone, copied = median(medians["lonely"]), median(medians["copied"])
    slow = {source: quantiles(spent, n=100)[98] * 1e3 for source, spent in times.items()}
    return Figure(
        AREA,
        f"time to acknowledge a write, {destinations} destinations against none",
        copied / alone,
        "×",
        bar=at_most(1.05),
        note=(
            f"{_PACED_WRITES_PER_S} writes/s: medians {alone * 1e6:.0f} µs and {copied * 1e6:.0f} µs, "
            f"p99 {slow['lonely']:.2f} ms and {slow['copied']:.2f} ms"
        ),
    )


def _answers_s(server: Topics, source: str, seconds: float) -> list[float]:
    request = server.write(source, COMPACT, range(1))
    spent: list[float] = []
    with server.connection() as send:
        send(request)
        deadline = time.perf_counter() + seconds
        while len(spent) < 2 or time.perf_counter() < deadline:
            started = time.perf_counter()
            send(request)
            spent.append(time.perf_counter() - started)
            time.sleep(1 / _PACED_WRITES_PER_S)
    return spent


def _copies(session: Session, server: Topics) -> Figure:
    destinations = min(_MANY, session.sizes.destinations)
    session.say(f"  copies to {destinations} destinations")
    writes = max(session.sizes.local_records // (_BATCH * 10), 2)
    rates, by_cpu = _forward(session, server, "source", destinations, _BATCH, writes)
    return Figure.of_rounds(
        AREA,
        f"copies, batches of {_BATCH} to {destinations} destinations",
        rates,
        "records/s",
        bar=at_least(500_000),
        note=per_cpu_second(by_cpu),
    )


def _forward(
    session: Session, server: Topics, source: str, destinations: int, batch: int, writes: int
) -> tuple[list[float], float]:
    """Copies a second, of each round: from the first write until the last destination has everything.

    The last figure is of all rounds, and by the server's processor time.
    """
    names = _connect(server, source, destinations)
    request = server.write(source, COMPACT, range(batch))
    rates = []
    copies = writes * batch * destinations
    cpu_s = cpu_seconds(server.pid)
    with server.connection() as send:
        for _ in range(session.sizes.rounds):
            started = time.perf_counter()
            for _ in range(writes):
                send(request)
            _wait_until_forwarded(server)
            rates.append(copies / (time.perf_counter() - started))
    cpu_s = cpu_seconds(server.pid) - cpu_s
    _check(server, names, writes * batch * session.sizes.rounds)
    return rates, copies * len(rates) / max(cpu_s, 0.01)


def _fan(session: Session, server: Topics, directory: Path) -> Iterator[Figure]:
    destinations = session.sizes.destinations
    session.say(f"  single records to {destinations} destinations")
    writes = max(session.sizes.local_records // 200, 2)
    rates, by_cpu = _forward(session, server, "fan", destinations, 1, writes)
    yield Figure.of_rounds(
        AREA,
        f"copies, single records to {destinations} destinations",
        rates,
        "records/s",
        note=per_cpu_second(by_cpu),
    )
    before = _journal_frames(directory)
    with server.connection() as send:
        send(http_request("/v0/topics/fan", b'{"records":[{"data":1}]}'))
    _wait_until_forwarded(server)
    yield Figure(
        AREA,
        f"journal frames that copies of one record to {destinations} destinations add to its own",
        _journal_frames(directory) - before - 1,
        "frames",
        bar=at_most(1),
    )


def _journal_frames(directory: Path) -> int:
    """As the files have them, of every kind."""
    found = 0
    for path in directory.rglob("*.journal"):
        data = memoryview(path.read_bytes())
        at = FILE_HEADER_BYTES
        while at < len(data):
            frame, _ = read_frame(data, at, 0)
            if frame is None:
                break
            found += 1
            at = frame.end
    return found
