"""Ours beside other logs in one run: the same payload, connections, durability and generator for all.

Redis Streams, NATS JetStream, RabbitMQ streams, PostgreSQL as an event table, and with
`TOPICS_BENCH_PEER=http://host:port` any server that speaks `/v0`. What is not there is left out, and said so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.beside_redis import (
    BARS,
    BATCHES,
    BATCHES_SYNCED,
    NAMED_BATCHES,
    NAMED_SINGLE,
    SINGLE,
    SINGLE_SYNCED,
    Case,
)
from benchmarks.compiled import CompiledLoad, Plan, Sent, Target, answering, compiled
from benchmarks.contenders import http_request
from benchmarks.figures import Bar, Figure, number
from benchmarks.payloads import COMPACT
from benchmarks.peer_servers import NAMES, EventTable, JetStream, OurServer, RedisStreams, Server, SpokenTo
from benchmarks.rabbit import RabbitStreams
from benchmarks.rounds import Contender, in_turns
from benchmarks.session import Session

AREA = "peers"
PEER = "TOPICS_BENCH_PEER"
# Redis is measured with us alone, because bars are for it: what others do between their rounds takes one of
# two cores from whoever needs both.
_GROUPS = (("Redis Streams",), ("NATS JetStream", "RabbitMQ streams", "PostgreSQL", PEER))
_CASES = (SINGLE, NAMED_SINGLE, BATCHES, NAMED_BATCHES, SINGLE_SYNCED, BATCHES_SYNCED)


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        program = compiled(directory)
        ceilings = {connections: _ceiling(session, program, connections) for connections in (16, 64)}
        for connections, rate in ceilings.items():
            yield Figure(AREA, f"the generator's own ceiling, {connections} connections", rate, "requests/s")
        # In the test that keeps them from rotting: one that says everything which a write can say.
        cases = _CASES if session.sizes.rounds > 1 else (NAMED_BATCHES,)
        for durability in dict.fromkeys(case.durability for case in cases):
            for names in _GROUPS:
                with ExitStack() as stack:
                    servers = _servers(session, directory, durability, names, stack)
                    for case in cases:
                        if case.durability == durability and len(servers) > 1:
                            yield from _compared(session, program, servers, case)


def _ceiling(session: Session, program: Path, connections: int) -> float:
    """Against a server that only answers."""
    session.say(f"  the generator alone, {connections} connections")
    request = Sent(http_request(f"/v0/topics/{NAMES[0]}", COMPACT.body([1])).data)
    with answering(program) as port:
        load = CompiledLoad(program, Target("127.0.0.1", port), [Plan((), [request])] * connections, 1)
        try:
            counts = [load.run(session.sizes.round_s) for _ in range(session.sizes.rounds)]
        finally:
            load.close()
    return median(count / seconds for count, seconds in counts)


def _servers(
    session: Session, directory: Path, durability: str, names: Collection[str], stack: ExitStack
) -> list[Server]:
    """Ours comes first, and without it there is nothing to compare."""
    # One for each group of peers: what came before counts for nobody.
    place = directory / f"beside {' and '.join(names)}, {durability}"
    place.mkdir()
    servers: list[Server] = [OurServer(place, durability)]
    stack.callback(servers[0].close)
    for name, start in _peers(directory, durability).items():
        if name not in names:
            continue
        try:
            servers.append(start())
        except RuntimeError as reason:
            session.leave_out(AREA, f"{name}, {durability} ({reason})")
        else:
            stack.callback(servers[-1].close)
    return servers


def _peers(directory: Path, durability: str) -> Mapping[str, Callable[[], Server]]:
    known: dict[str, Callable[[], Server]] = {
        "Redis Streams": lambda: RedisStreams(directory, durability),
        "NATS JetStream": lambda: JetStream(directory, durability),
        "RabbitMQ streams": lambda: RabbitStreams(directory, durability),
        "PostgreSQL": lambda: EventTable(directory, durability),
    }
    if os.environ.get(PEER):
        known[PEER] = lambda: SpokenTo(os.environ[PEER], durability)
    return known


def _plan(server: Server, case: Case, connection: int) -> Plan:
    """Every connection goes round all topics, each from another one on."""
    requests = []
    for at in range(len(NAMES)):
        numbers = range(at * case.batch, (at + 1) * case.batch)
        requests.append(server.write(NAMES[(connection + at) % len(NAMES)], case.shape, numbers, connection))
    return Plan(server.greetings(connection), requests)


def _compared(session: Session, program: Path, servers: list[Server], case: Case) -> Iterator[Figure]:
    name = str(case) if case.shape is COMPACT else f"{case}, {case.shape.name}"
    session.say(f"  {name}: {', '.join(server.label for server in servers)}")
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for server in servers:
            server.prepare()
            plans = [_plan(server, case, connection) for connection in range(case.connections)]
            load = CompiledLoad(program, server.target, plans, case.batch)
            stack.callback(load.close)
            contenders.append(Contender(server.label, load.run, server.pid, server.prepare))
        in_turns(session, contenders)
    ours, *peers = contenders
    for server, peer in zip(servers[1:], peers, strict=True):
        yield Figure(
            AREA,
            f"{name}, against {peer.label}",
            ours.rate,
            "records/s",
            peer=peer.label,
            peer_value=peer.rate,
            bar=bar_against(server, case),
            cpu_ratio=_cpu_ratio(ours, peer),
            spread=ours.spread,
            peer_spread=peer.spread,
            note=_cpu_note(peer),
        )


def bar_against(server: Server, case: Case) -> Bar | None:
    """Only Redis has to be reached; the others are there to be seen."""
    return BARS.get(case) if isinstance(server, RedisStreams) else None


def _cpu_ratio(ours: Contender, peer: Contender) -> float | None:
    if not (ours.cpu_per_record and peer.cpu_per_record and median(ours.cpu_per_record)):
        return None
    return median(peer.cpu_per_record) / median(ours.cpu_per_record)


def _cpu_note(peer: Contender) -> str:
    if not peer.cpu_per_record:
        return ""
    return f"{peer.label}: {number(median(peer.cpu_per_record) * 1e6)} µs of processor time per record"
