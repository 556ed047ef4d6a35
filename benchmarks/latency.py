"""How long one waits at half load: appends, diffs at the tail, claims, and records on their way to a watcher.

What the server does at most is measured first, with every connection asking again when it is answered; then
half as many requests are due at fixed times, and their lateness is counted from these times. Redis gets as
many, in turns: whatever keeps both waiting is the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from benchmarks.compiled import CompiledLoad, Plan, Sent, Target, compiled
from benchmarks.contenders import Redis, Topics, command, http_request
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
        server, redis = Topics(directory / "topics"), Redis(directory / "redis", "everysec")

        def load(port: int, sent: Sent) -> CompiledLoad:
            return CompiledLoad(program, Target("127.0.0.1", port), [Plan((), [sent])] * _CONNECTIONS, 1)

        try:
            server.create(["written", "watched"], "disk")
            server.put("/v0/topics/jobs", {"type": "queue", "durability": "disk"})
            server.fill("written", COMPACT, 1000)
            redis.fill("written", COMPACT, 1000)
            append = http_request("/v0/topics/written", COMPACT.body([1])).data
            added = redis.write("written", COMPACT, [1])
            yield from _half_load(
                session,
                "append of one record",
                load(server.port, Sent(append)),
                load(redis.port, Sent(added.data, lines=added.reply_lines)),
            )
            head = server.server.request("GET", "/v0/topics/written").json["head_seq"]
            diff = http_request(
                "/v0/topics/written/diff", b'{"from_seq":%d,"limit":%d}' % (head - _TAIL, _TAIL)
            ).data
            ranged = command(b"XREVRANGE", b"written", b"+", b"-", b"COUNT", b"%d" % _TAIL)
            yield from _half_load(
                session,
                f"diff of the last {_TAIL}",
                load(server.port, Sent(diff)),
                load(redis.port, Sent(ranged, lines=1 + _TAIL * redis.lines_of(COMPACT))),
            )
            server.fill("jobs", COMPACT, session.sizes.local_records)
            claim = http_request("/v0/topics/jobs/claim", b'{"node":"bench","max":1,"lease_ms":600000}').data
            yield from _half_load(session, "claim of one job", load(server.port, Sent(claim)))
            yield from _delivery(session, server)
        finally:
            server.close()
            redis.close()


def _half_load(
    session: Session, name: str, ours: CompiledLoad, peers: CompiledLoad | None = None
) -> Iterator[Figure]:
    session.say(f"  {name}")
    loads = [ours] if peers is None else [ours, peers]
    try:
        done, seconds = ours.run(session.sizes.round_s / 2)
        rate = done / seconds / 2
        rounds = [
            [load.paced(session.sizes.round_s, rate) for load in loads] for _ in range(session.sizes.rounds)
        ]
    finally:
        for load in loads:
            load.close()
    # Of each quantile, that of the middle round: in one of them, the machine may have stood still.
    late = [tuple(map(median, zip(*of_one, strict=True))) for of_one in zip(*rounds, strict=True)]
    yield from _figures(name, rate, *late)


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


def _figures(
    name: str, rate: float, late_ms: Sequence[float], peers_ms: Sequence[float] = ()
) -> Iterator[Figure]:
    for at, which in enumerate(("p50", "p99", "p99.9")):
        figure = Figure(AREA, f"{name}, half load, {which}", late_ms[at], "ms")
        if not at:
            figure.note = f"{number(rate)} a second"
        if peers_ms:
            figure.peer, figure.peer_value = "Redis everysec", peers_ms[at]
        yield figure
