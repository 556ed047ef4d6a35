"""The cost of each shape of an append to the server, and its rate beside Redis Streams.

Each round measures all shapes, one after the other, and of each shape all servers and Redis. So what slows
the machine down for a while does so for one round of every shape, and ratios are taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.append_shapes import API_KEY, COMMON, OTHERS, PLAIN, Append
from benchmarks.compiled import CompiledLoad, Plan, Target, compiled
from benchmarks.contenders import Redis, Topics, cpu_seconds
from benchmarks.figures import Figure
from benchmarks.load import GeneratorFailed
from benchmarks.rounds import settle, wait_until_quiet
from benchmarks.session import Session
from benchmarks.stream_reader import StreamReader

AREA = "shapes"
COST, LEAST_COST, BESIDE_PLAIN, P50, P99 = "µs/request", "least µs", "÷ plain", "p50 ms", "p99 ms"
_APPENDFSYNC = {"disk": "everysec", "fsync": "always"}
# Of the length of rounds in other areas: there are many shapes.
_ROUND_SHARE = 0.5
# The length of a step, in seconds, in which the server remembers keys.
_FILL_S = 1.0
_COPIES_WITHIN_S = 60.0


def chosen(session: Session) -> list[Append]:
    """The shapes to measure; what each costs is compared with the first."""
    only = session.shapes.only
    if session.sizes.rounds == 1 and not only:
        # In the test that keeps the benchmarks from rotting.
        return [PLAIN]
    shapes = [
        shape
        for shape in (*COMMON, *OTHERS)
        if shape is PLAIN
        or (shape.name in only if only else session.sizes.rounds > 3 or not shape.remembered)
    ]
    if session.shapes.api_keys:
        shapes += [replace(shape, api_key=API_KEY) for shape in shapes if shape in COMMON]
    return shapes


def run(session: Session) -> Iterator[Figure]:
    shapes = chosen(session)
    with session.directory() as directory, ExitStack() as stack:
        contest = _Contest(session, directory, stack)
        for shape in shapes:
            contest.add(shape)
        contest.measure()
        yield from contest.figures()


class _Lane:
    """One server that takes appends of one shape, and what the rounds of it have shown."""

    def __init__(self, label: str, shape: Append, server: _Ours | _Peer) -> None:
        self.label = label
        self.shape = shape
        self.server = server
        self.rates: list[float] = []
        # Microseconds of processor time for a request.
        self.costs: list[float] = []
        self.late_ms: list[tuple[float, float, float]] = []

    def round(self, program: Path, seconds: float, settle_s: float) -> None:
        server = self.server
        with server.prepared(self.shape, program):
            load = CompiledLoad(program, server.target, server.plans(self.shape), 1)
            try:
                wait_until_quiet(server.pid, settle_s)
                spent, started = cpu_seconds(server.pid), time.monotonic()
                tally = load.tally(seconds)
                # Work that the server does later belongs to the requests.
                server.finish(self.shape)
                settle(server.pid, settle_s)
                spent, elapsed = cpu_seconds(server.pid) - spent, time.monotonic() - started
            finally:
                load.close()
        requests = tally.replies * self.shape.at_once
        self.rates.append(requests / tally.seconds)
        self.costs.append(max(spent - server.idle * elapsed, 0.0) / requests * 1e6)
        self.late_ms.append(tally.late_ms)

    def forget(self) -> None:
        self.rates.clear()
        self.costs.clear()
        self.late_ms.clear()


class _Process:
    """A server: where it is, and the share of a processor that it takes when it has nothing to do."""

    def __init__(self, pid: int, port: int, measured_s: float) -> None:
        self.pid = pid
        self.target = Target("127.0.0.1", port)
        time.sleep(measured_s)
        spent = cpu_seconds(pid)
        time.sleep(measured_s)
        self.idle = (cpu_seconds(pid) - spent) / measured_s


class _Ours(_Process):
    def __init__(self, server: Topics, api_key: str, measured_s: float) -> None:
        super().__init__(server.pid, server.port, measured_s)
        self._server = server
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._has_remembered = False

    def plans(self, shape: Append) -> list[Plan]:
        return [shape.plan(connection) for connection in range(shape.connections)]

    @contextmanager
    def prepared(self, shape: Append, program: Path) -> Iterator[None]:
        """The topics of the shape are new, unless the keys that they remember are part of it."""
        if not self._has_remembered:
            for name in shape.names:
                self._ask("DELETE", f"/v0/topics/{name}")
                self._ask("DELETE", f"/v0/topics/{name}-copy")
                if not shape.is_missing:
                    self._ask("PUT", f"/v0/topics/{name}", shape.configuration(name))
                if shape.is_routed:
                    self._ask("PUT", f"/v0/routers/{name}", {"source": name, "dest": f"{name}-copy"})
        if shape.remembered and not self._has_remembered:
            self._remember(shape, program)
            self._has_remembered = True
        if not shape.is_watched:
            yield
            return
        reader = StreamReader(self.target, "/v0/tail?" + "&".join(f"topic={name}@0" for name in shape.names))
        try:
            yield
        finally:
            reader.close()

    def finish(self, shape: Append) -> None:
        """Wait until routers have copied everything."""
        deadline = time.monotonic() + _COPIES_WITHIN_S
        for name in shape.names if shape.is_routed else ():
            written = self._ask("GET", f"/v0/topics/{name}?touch=false")["head_seq"]
            while self._ask("GET", f"/v0/routers/{name}")["forwarded_total"] < written:
                assert time.monotonic() < deadline, "a router did not copy everything"
                time.sleep(0.05)

    def _remember(self, shape: Append, program: Path) -> None:
        filling = replace(shape, at_once=16)
        load = CompiledLoad(program, self.target, self.plans(filling), filling.at_once)
        missing = shape.remembered
        try:
            while missing > 0:
                missing -= load.run(_FILL_S)[0]
        finally:
            load.close()

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._server.server.request(method, path, body, self._headers)
        assert answer.status < 300, answer.text
        return answer.json


class _Peer(_Process):
    def __init__(self, server: Redis, measured_s: float) -> None:
        super().__init__(server.pid, server.port, measured_s)
        self._server = server

    def plans(self, shape: Append) -> list[Plan]:
        return [shape.redis_plan(connection) for connection in range(shape.connections)]

    @contextmanager
    def prepared(self, shape: Append, program: Path) -> Iterator[None]:
        self._server.drop(shape.names)
        yield

    def finish(self, shape: Append) -> None:
        return None


@dataclass
class _Case:
    shape: Append
    ours: list[_Lane]
    peer: _Lane
    lanes: list[_Lane] = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = [*self.ours, self.peer]


class _Contest:
    """All servers and all shapes of one run."""

    def __init__(self, session: Session, directory: Path, stack: ExitStack) -> None:
        self._session = session
        self._directory = directory
        self._stack = stack
        self._program = compiled(directory)
        self._ours: dict[tuple[object, ...], _Ours] = {}
        self._peers: dict[str, _Peer] = {}
        self._cases: list[_Case] = []
        self._checkouts = _labelled(session.shapes.servers)

    def add(self, shape: Append) -> None:
        ours = [_Lane(label, shape, self._server(label, shape)) for label in self._checkouts]
        peer = self._redis(_APPENDFSYNC[shape.durability])
        self._cases.append(_Case(shape, ours, _Lane("Redis", shape, peer)))

    def _server(self, label: str, shape: Append) -> _Ours:
        """One process for all shapes that need the same settings.

        `watched` has its own: routers have cost more on a server whose topics were watched before.
        """
        kind = (label, shape.api_key, shape.settings, shape.is_watched)
        if kind not in self._ours:
            directory = self._directory / f"server-{len(self._ours)}"
            keys = {"TOPICS_API_KEYS": f"boss,{shape.api_key}"} if shape.api_key else {}
            server = Topics(directory, self._checkouts[label], **dict(shape.settings), **keys)
            self._stack.callback(server.close)
            self._ours[kind] = _Ours(server, "boss" if shape.api_key else "", self._session.sizes.round_s)
        return self._ours[kind]

    def _redis(self, appendfsync: str) -> _Peer:
        if appendfsync not in self._peers:
            server = Redis(self._directory / f"redis-{appendfsync}", appendfsync)
            self._stack.callback(server.close)
            self._peers[appendfsync] = _Peer(server, self._session.sizes.round_s)
        return self._peers[appendfsync]

    def measure(self) -> None:
        """A short round that does not count, then the rounds."""
        sizes = self._session.sizes
        seconds = sizes.round_s * _ROUND_SHARE
        self._round("warm-up", seconds / 2)
        for case in self._cases:
            for lane in case.lanes:
                lane.forget()
        for number in range(sizes.rounds):
            self._round(f"round {number + 1} of {sizes.rounds}", seconds, number)

    def _round(self, title: str, seconds: float, first: int = 0) -> None:
        """`first`: which of the servers begins, so that none always comes after the same one."""
        self._session.say(f"  {title}")
        for case in list(self._cases):
            first %= len(case.lanes)
            for lane in (*case.lanes[first:], *case.lanes[:first]):
                try:
                    lane.round(self._program, seconds, self._session.sizes.settle_s)
                except (GeneratorFailed, AssertionError) as error:
                    reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
                    self._session.leave_out(AREA, f"{case.shape}, {lane.label} ({reason})")
                    self._cases.remove(case)
                    break

    def figures(self) -> list[Figure]:
        """The shape with the worst ratio comes first; the lines of one shape stay together."""
        groups = [self._figures_of(case) for case in self._cases]
        groups.sort(key=lambda group: min(figure.ratio or 0.0 for figure in group))
        return [figure for group in groups for figure in group]

    def _figures_of(self, case: _Case) -> list[Figure]:
        return [self._figure(case, at) for at in range(len(case.ours))]

    def _figure(self, case: _Case, at: int) -> Figure:
        lane, peer = case.ours[at], case.peer
        also = {COST: median(lane.costs), LEAST_COST: min(lane.costs)}
        plain = next((one for one in self._cases if one.shape is PLAIN), None)
        if plain is not None:
            also[BESIDE_PLAIN] = _median_ratio(lane.costs, plain.ours[at].costs)
        if len(case.ours) > 1:
            also[f"÷ {case.ours[0].label}"] = _median_ratio(lane.costs, case.ours[0].costs)
        also[P50], also[P99] = (median(late[i] for late in lane.late_ms) for i in (0, 1))
        also[f"Redis {P50}"], also[f"Redis {P99}"] = (
            median(late[i] for late in peer.late_ms) for i in (0, 1)
        )
        return Figure.of_rounds(
            AREA,
            f"{case.shape}{f', {lane.label}' if len(case.ours) > 1 else ''}",
            lane.rates,
            "requests/s",
            peer=f"Redis {_APPENDFSYNC[case.shape.durability]}",
            peer_value=median(peer.rates),
            cpu_ratio=median(peer.costs) / also[COST] if also[COST] else None,
            peer_spread=(min(peer.rates), max(peer.rates)),
            ratio_of_rounds=_median_ratio(lane.rates, peer.rates),
            also=also,
        )


def _median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Of the ratios of each round."""
    return median(value / other if other else 0.0 for value, other in zip(values, others, strict=True))


def _labelled(checkouts: Sequence[Path]) -> dict[str, Path | None]:
    """The command of each server, by the name that its lines have."""
    if not checkouts:
        return {"topics": None}
    labelled: dict[str, Path | None] = {}
    for checkout in checkouts:
        name = checkout.resolve().name
        number = sum(label.partition("#")[0] == name for label in labelled)
        labelled[f"{name}#{number + 1}" if number else name] = command_of(checkout)
    return labelled


def command_of(checkout: Path) -> Path:
    return checkout.resolve() / ".venv" / "bin" / "topics"
