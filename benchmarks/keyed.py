"""Single appends with an idempotency key each, beside the same without: what a safe retry costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from benchmarks.compiled import CompiledLoad, Plan, Sent, compiled
from benchmarks.contenders import http_request
from benchmarks.figures import Figure, times_peer
from benchmarks.payloads import COMPACT
from benchmarks.peer_servers import NAMES, OurServer
from benchmarks.rounds import Contender, compare
from benchmarks.session import Session

AREA = "keyed"
_CONNECTIONS = 16
# More than a server does: no key comes twice in a round, and behind it the topics are made anew.
_MOST_A_SECOND = 150_000


def run(session: Session) -> Iterator[Figure]:
    session.say("  single appends with a key each, and without")
    each = int(_MOST_A_SECOND * session.sizes.round_s / _CONNECTIONS)
    with session.directory() as directory, ExitStack() as stack:
        program = compiled(directory)

        def contender(label: str, append: Callable[[int, int], bytes]) -> Contender:
            (directory / label).mkdir()
            server = OurServer(directory / label, "disk")
            stack.callback(server.close)
            server.prepare()
            load = CompiledLoad(program, server.target, _plans(each, append), 1)
            stack.callback(load.close)
            return Contender(label, load.run, server.pid, server.prepare)

        keyed, plain = contender("keyed", _keyed), contender("keyless", _plain)
        name = f"single appends with a key each, {_CONNECTIONS} connections, disk, against those without"
        yield compare(session, AREA, name, keyed, plain, times_peer(0.9))


def _plans(each: int, append: Callable[[int, int], bytes]) -> list[Plan]:
    return [
        Plan((), [Sent(append(connection, at)) for at in range(each)]) for connection in range(_CONNECTIONS)
    ]


def _plain(connection: int, at: int) -> bytes:
    name = NAMES[(connection + at) % len(NAMES)]
    return http_request(f"/v0/topics/{name}", COMPACT.body([at])).data


def _keyed(connection: int, at: int) -> bytes:
    head, end, body = _plain(connection, at).partition(b"\r\n\r\n")
    return b"%b\r\nIdempotency-Key: %08x-%016x%b%b" % (head, connection, at, end, body)
