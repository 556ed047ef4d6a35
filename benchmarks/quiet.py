"""Small and quiet loads: what an append costs a server that has little to do, how soon the only watcher has a
record, from its topic and through a router, and what a server does when there is nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from benchmarks.compiled import CompiledLoad, Plan, Sent, compiled
from benchmarks.contenders import Topics, cpu_seconds, http_request, wake_ups
from benchmarks.figures import Figure
from benchmarks.payloads import COMPACT
from benchmarks.peer_servers import NAMES, OurServer
from benchmarks.rounds import Contender, in_turns, settle
from benchmarks.session import Session
from benchmarks.watch import WatcherProcess
from benchmarks.watchers import WatchJob

AREA = "quiet"
_CONNECTIONS = 16
_APPENDS_PER_S = 2000
_WATCHED_WRITES_PER_S = 200.0
# Long enough for a distribution, and for what happens once a second, however short the rounds are.
_LEAST_S = 1.0


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        program = compiled(directory)
        yield _append(session, program, directory)
        server = Topics(directory / "topics")
        try:
            server.create(["watched", "source"], "disk")
            server.put("/v0/routers/copies", {"source": "source", "dest": "copied"})
            yield from _delivery(session, "the only watcher", WatchJob(server.port, "watched", 1))
            routed = WatchJob(server.port, "source", 1, watched="copied")
            yield from _delivery(session, "the only watcher of a router's destination", routed)
            # Not before: a server that has just started still imports what nobody has asked for yet.
            watcher = WatcherProcess(WatchJob(server.port, "watched", 1))
            yield from _idle(session, server, "one watcher")
            watcher.close()
            yield from _idle(session, server, "nobody connected")
        finally:
            server.close()


def _append(session: Session, program: Path, directory: Path) -> Figure:
    """In turns with as many as it takes: what it then does for many at once, it does here for each."""
    session.say(f"  single appends, {_APPENDS_PER_S} a second and as many as it takes")
    requests = [Sent(http_request(f"/v0/topics/{name}", COMPACT.body([1])).data) for name in NAMES]
    server = OurServer(directory, "disk")
    try:
        server.prepare()
        load = CompiledLoad(program, server.target, [Plan((), requests)] * _CONNECTIONS, 1)
        few = Contender("few", load.steadily(_APPENDS_PER_S), server.pid, server.prepare)
        many = Contender("many", load.run, server.pid, server.prepare)
        in_turns(session, (few, many))
        load.close()
    finally:
        server.close()
    spent, spent_busy = ([seconds * 1e6 for seconds in one.cpu_per_record] for one in (few, many))
    return Figure.of_rounds(
        AREA,
        f"processor time of a single append, {_APPENDS_PER_S} a second, {_CONNECTIONS} connections, disk",
        spent,
        "µs",
        peer="as many as it takes",
        peer_value=median(spent_busy),
        peer_spread=(min(spent_busy), max(spent_busy)),
    )


def _seconds(session: Session) -> float:
    return max(session.sizes.round_s * session.sizes.rounds, _LEAST_S)


def _delivery(session: Session, whom: str, job: WatchJob) -> Iterator[Figure]:
    """Writer and watcher are one process, so that one clock tells how long it took."""
    session.say(f"  delivery to {whom}")
    job.writes_per_s = _WATCHED_WRITES_PER_S
    watcher = WatcherProcess(job)
    # The first records of a router find nothing made ready for them.
    watcher.run(_LEAST_S / 4)
    tally = watcher.run(_seconds(session))
    watcher.close()
    missing = tally.writes - tally.deliveries
    assert not missing, f"{missing} records did not arrive"
    cuts = quantiles(tally.latencies_ms, n=100)
    for which, value in (("median", cuts[49]), ("p99", cuts[98])):
        name = f"write to delivery, {whom}, {_WATCHED_WRITES_PER_S:.0f} writes a second, {which}"
        yield Figure(AREA, name, value, "ms")


def _idle(session: Session, server: Topics, who: str) -> Iterator[Figure]:
    session.say(f"  idle, {who}")
    settle(server.pid, session.sizes.settle_s)
    woken, spent, started = wake_ups(server.pid), cpu_seconds(server.pid), time.perf_counter()
    time.sleep(_seconds(session))
    elapsed = time.perf_counter() - started
    spent, woken = cpu_seconds(server.pid) - spent, wake_ups(server.pid) - woken
    yield Figure(AREA, f"processor time of an idle server, {who}", spent / elapsed * 1e3, "ms a second")
    yield Figure(AREA, f"how often an idle server wakes up, {who}", woken / elapsed, "times a second")
