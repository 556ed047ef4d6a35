"""Delivery to many watchers: how many records reach them a second, how soon, and what each one costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import msgspec

from benchmarks.contenders import Topics, cpu_seconds, resident_bytes
from benchmarks.figures import Bar, Figure, at_least, at_most, per_cpu_second
from benchmarks.session import ROOT, Session
from benchmarks.watchers import WatchJob, WatchTally

AREA = "watch"
_LIMITS = {"TOPICS_MAX_SSE_CONNECTIONS": "5000", "TOPICS_MAX_WATCH_SESSIONS": "20000"}


class WatcherProcess:
    def __init__(self, job: WatchJob) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.watchers"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(msgspec.json.encode(job) + b"\n")
        self._receive()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the watchers failed; their error is above")
        return line

    def run(self, seconds: float) -> WatchTally:
        self._send(b"%f\n" % seconds)
        return msgspec.json.decode(self._receive(), type=WatchTally)

    def close(self) -> None:
        self._process.communicate(timeout=20)


@contextmanager
def watching(
    server: Topics, watchers: int, writes_per_s: float = 0.0, *, own_nodes: bool = False
) -> Iterator[WatcherProcess]:
    process = WatcherProcess(WatchJob(server.port, "watched", watchers, writes_per_s, own_nodes))
    try:
        yield process
    finally:
        process.close()


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics", **_LIMITS)
        try:
            server.create(["watched"], "disk")
            yield _idle_memory(session, server)
            yield _deliveries(session, server)
            yield _own_nodes(session, server)
            yield _latency(session, server)
        finally:
            server.close()


def _idle_memory(session: Session, server: Topics) -> Figure:
    count = session.sizes.watchers
    session.say(f"  {count} idle watchers")
    # What the first connections bring with them is not theirs alone.
    with watching(server, min(count, 50)):
        pass
    time.sleep(0.5)
    before = resident_bytes(server.pid)
    with watching(server, count):
        grown = resident_bytes(server.pid) - before
    return Figure(AREA, "resident per idle watcher", grown / count / 1024, "KiB", bar=at_most(16))


def _deliveries(session: Session, server: Topics) -> Figure:
    count = session.sizes.watchers
    session.say(f"  one writer, {count} watchers")
    rates, cpu_s = _flood(session, server, count, own_nodes=False)
    return Figure.of_rounds(
        AREA,
        f"deliveries to {count} watchers of one topic, 1 writer",
        rates,
        "records/s",
        bar=at_least(120_000),
        note=per_cpu_second(1 / cpu_s),
    )


def _own_nodes(session: Session, server: Topics) -> Figure:
    """A chat: all write in turn, and none wants its own words back. Against watchers that want everything."""
    count = session.sizes.watchers // 10
    session.say(f"  {count} watchers that each leave out their own node's records")
    costs: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3 if session.sizes.rounds > 1 else 1):
        for own_nodes, found in costs.items():
            found.append(_flood(session, server, count, own_nodes=own_nodes)[1] * 1e6)
    return Figure(
        AREA,
        f"processor time per delivery, {count} watchers, each without its own node's records",
        median(costs[True]),
        "µs",
        peer="watchers that want everything",
        peer_value=median(costs[False]),
        bar=Bar(1.5, at_most=True, of_ratio=True),
    )


def _flood(session: Session, server: Topics, count: int, *, own_nodes: bool) -> tuple[list[float], float]:
    """Deliveries a second, round by round, and the server's processor time for one."""
    with watching(server, count, own_nodes=own_nodes) as watchers:
        watchers.run(session.sizes.round_s / 4)
        cpu_s = cpu_seconds(server.pid)
        tallies = [watchers.run(session.sizes.round_s) for _ in range(session.sizes.rounds)]
        cpu_s = max(cpu_seconds(server.pid) - cpu_s, 0.01)
    rates = [tally.deliveries / tally.seconds for tally in tallies]
    return rates, cpu_s / max(sum(tally.deliveries for tally in tallies), 1)


def _latency(session: Session, server: Topics) -> Figure:
    count, writes_per_s = session.sizes.watchers // 10, 500
    session.say(f"  {writes_per_s} writes a second, {count} watchers")
    with watching(server, count, writes_per_s) as watchers:
        tally = watchers.run(session.sizes.round_s * session.sizes.rounds)
    missing = tally.writes * count - tally.deliveries
    assert not missing, f"{missing} records did not arrive"
    return Figure(
        AREA,
        f"write to delivery, p99, {count} watchers and {writes_per_s} writes a second",
        quantiles(tally.latencies_ms, n=100)[98],
        "ms",
        bar=at_most(5),
    )
