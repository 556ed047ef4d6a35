"""How long one waits at half load: appends, diffs at the tail, claims, and records on their way to a watcher.

What the server does at most is measured first, with every connection asking again when it is answered; then
half as many requests are due at fixed times, and their lateness is counted from these times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

from benchmarks.compiled import CompiledLoad, Plan, Sent, Target, compiled
from benchmarks.contenders import Topics, http_request
from benchmarks.figures import Figure, number
from benchmarks.payloads import COMPACT
from benchmarks.session import Session
from benchmarks.watch import WatcherProcess
from benchmarks.watchers import WatchJob

AREA = "latency"
_CONNECTIONS = 16
_TAIL = 10
# Watchers of one topic.
_WATCHERS = 10


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        program = compiled(directory)
        server = Topics(directory / "topics")
        try:
            server.create(["written", "watched"], "disk")
            made = server.server.request("PUT", "/v0/topics/jobs", {"type": "queue", "durability": "disk"})
            assert made.status < 300, made.text
            server.fill("written", COMPACT, 1000)
            append = http_request("/v0/topics/written", COMPACT.body([1])).data
            yield from _half_load(session, program, server, "append of one record", append)
            head = server.server.request("GET", "/v0/topics/written").json["head_seq"]
            body = b'{"from_seq":%d,"limit":%d}' % (head - _TAIL, _TAIL)
            diff = http_request("/v0/topics/written/diff", body).data
            yield from _half_load(session, program, server, f"diff of the last {_TAIL}", diff)
            server.fill("jobs", COMPACT, session.sizes.local_records)
            claim = http_request("/v0/topics/jobs/claim", b'{"node":"bench","max":1,"lease_ms":600000}').data
            yield from _half_load(session, program, server, "claim of one job", claim)
            yield from _delivery(session, server)
        finally:
            server.close()


def _half_load(
    session: Session, program: Path, server: Topics, name: str, request: bytes
) -> Iterator[Figure]:
    session.say(f"  {name}")
    plans = [Plan((), [Sent(request)])] * _CONNECTIONS
    load = CompiledLoad(program, Target("127.0.0.1", server.port), plans, 1)
    try:
        done, seconds = load.run(session.sizes.round_s / 2)
        rate = done / seconds / 2
        late = load.paced(session.sizes.round_s * session.sizes.rounds, rate)
    finally:
        load.close()
    yield from _figures(name, rate, late)


def _delivery(session: Session, server: Topics) -> Iterator[Figure]:
    session.say(f"  delivery to {_WATCHERS} watchers")
    flood = WatcherProcess(WatchJob(server.port, "watched", _WATCHERS))
    tally = flood.run(session.sizes.round_s / 2)
    flood.close()
    rate = max(tally.writes / tally.seconds / 2, 20.0)
    watchers = WatcherProcess(WatchJob(server.port, "watched", _WATCHERS, rate))
    # Long enough for a distribution, however slow everything is.
    late = watchers.run(max(session.sizes.round_s * session.sizes.rounds, 1.0)).latencies_ms
    watchers.close()
    cuts = quantiles(late, n=1000)
    yield from _figures(f"write to delivery, {_WATCHERS} watchers", rate, (cuts[499], cuts[989], cuts[998]))


def _figures(name: str, rate: float, late_ms: tuple[float, float, float]) -> Iterator[Figure]:
    for which, value in zip(("p50", "p99", "p99.9"), late_ms, strict=True):
        note = f"{number(rate)} a second" if which == "p50" else ""
        yield Figure(AREA, f"{name}, half load, {which}", value, "ms", note=note)
