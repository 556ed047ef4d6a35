"""What all connections of one server share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from topics.core import MIB, Settings
from topics.core.clock import until_next
from topics.http.admission.auth import KeyRing, Tickets
from topics.http.admission.callers import Callers
from topics.http.admission.limits import SMALL_BYTES, ConnectionLimit, RequestRoom
from topics.http.admission.readiness import Readiness
from topics.http.known_heads import KnownHeads
from topics.http.request_log import RequestLog
from topics.http.response_heads import Heads
from topics.http.routing import RouteTree
from topics.http.stream import CloseCallbacks

# Requests or frames of one client are processed for at most this long; then others have their turn.
TURN_S = 0.01
# What a connection may be doing for too long; the order of `Limits.allowed_s`.
IDLE, HEAD, BODY, WRITE, LINGERING, WORKING = range(6)


class StallClock:
    """Since when a connection, or a request of HTTP/2, has made no progress."""

    __slots__ = ("_since", "_state")

    def __init__(self) -> None:
        self._state: tuple[int, int] = (-1, -1)
        self._since = 0.0

    def is_overdue(self, state: tuple[int, int], now: float, allowed_s: tuple[float, ...]) -> bool:
        """`state`: which timeout applies, and a number that changes while things move."""
        if state != self._state:
            self._state = state
            self._since = now
            return False
        return now - self._since >= allowed_s[state[0]]


class Served(Protocol):
    """A connection, or a stream of HTTP/2, as the server and the timeouts see it."""

    stall: StallClock

    @property
    def busy(self) -> bool:
        """A request is not answered."""

    def progress(self) -> tuple[int, int]:
        """Return which timeout applies, and a number that changes while things move."""

    def give_up(self) -> None:
        """The client has taken too long."""

    def wind_down(self) -> None:
        """The server stops: tell the client, if it can be told."""

    def close(self) -> None:
        """Close when everything is sent."""

    def abort(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Limits:
    """How much, and for how long, a client may keep us busy before its request is understood."""

    target_bytes: int = 16 * 1024
    # Room for the longest id a client may have to bring back: 256 topics with names of 255 bytes.
    head_bytes: int = 128 * 1024
    # A client may pipeline; what it sends ahead is held back by TCP once this much is waiting here.
    waiting_requests: int = 64
    waiting_bytes: int = MIB
    # Above the high mark nothing more is produced for a client that does not read.
    write_high_bytes: int = 256 * 1024
    write_low_bytes: int = 64 * 1024
    # A refused body this small is read and forgotten, so that the connection can be used again.
    discard_bytes: int = MIB
    # A larger one ends the connection, but slowly: closing on unread input resets it, and the
    # client would never see why.
    linger_bytes: int = 1024 * MIB
    linger_s: float = 30.0
    head_s: float = 15.0
    # A body has to bring this much, or its end, each time; a client that reads has to take this much.
    body_idle_s: float = 30.0
    body_step_bytes: int = 4 * 1024
    write_step_bytes: int = 64 * 1024
    keep_alive_s: float = 75.0
    # The same when most places are taken.
    crowded_idle_s: float = 2.0
    write_stall_s: float = 30.0
    sweep_s: float = 1.0

    def allowed_s(self) -> tuple[float, ...]:
        """How long a connection may stay in each of the states above."""
        return self.keep_alive_s, self.head_s, self.body_idle_s, self.write_stall_s, self.linger_s, inf


def _nothing_to_give() -> None:
    return None


@dataclass(slots=True, kw_only=True, eq=False)
class WireContext:
    settings: Settings
    routes: RouteTree
    keyring: KeyRing
    callers: Callers
    readiness: Readiness
    loop: asyncio.AbstractEventLoop
    limits: Limits = field(default_factory=Limits)
    heads: Heads = field(default_factory=Heads)
    tickets: Tickets = field(default_factory=Tickets)
    request_log: RequestLog = field(default_factory=RequestLog)
    known_heads: KnownHeads = field(default_factory=KnownHeads)
    # Connections speaking plain request and answer; the timeouts look at these.
    connections: set["Served"] = field(default_factory=set)
    # Connections that became a stream or a socket; their owners look after them.
    streams: set["Served"] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # Gives back memory that is only kept to be faster; called when there is none left.
    relieve: Callable[[], None] = field(default=_nothing_to_give)

    # Looked at for every request, so not worth a detour through the settings.
    max_body_bytes: int = field(init=False)
    ignores_unknown: bool = field(init=False)
    # Bodies of this size need neither be judged nor counted.
    small_body_bytes: int = field(init=False)
    connection_limit: ConnectionLimit = field(init=False)
    request_room: RequestRoom = field(init=False)
    close_callbacks: CloseCallbacks = field(init=False)

    def __post_init__(self) -> None:
        self.max_body_bytes = self.settings.max_body_bytes
        self.ignores_unknown = self.settings.unknown_keys == "ignore"
        self.connection_limit = ConnectionLimit(self.settings)
        self.request_room = RequestRoom(self.max_body_bytes)
        self.close_callbacks = CloseCallbacks(self.loop)
        self.small_body_bytes = min(self.max_body_bytes, SMALL_BYTES)

    @property
    def open_connections(self) -> int:
        return len(self.connections) + len(self.streams)

    def accept(self, connection: "Served", transport: asyncio.Transport) -> bool:
        """Count a new connection. False if there are too many: then the client is told so, and closed."""
        if self.connection_limit.is_full(self.open_connections):
            self.connection_limit.turn_away(transport, self.heads)
            return False
        transport.set_write_buffer_limits(high=self.limits.write_high_bytes, low=self.limits.write_low_bytes)
        self.connections.add(connection)
        self.request_log.accepted()
        return True

    def forget(self, connection: "Served") -> None:
        """The connection has ended, or another object serves it now."""
        self.connections.discard(connection)
        self.streams.discard(connection)

    def move_to_streams(self, connection: "Served") -> None:
        self.connections.discard(connection)
        self.streams.add(connection)

    def busy(self) -> bool:
        """True while a request is unanswered, a stream is open or a handler still runs."""
        return bool(self.streams or self.tasks) or any(connection.busy for connection in self.connections)


class Timeouts:
    """Clients that stall are closed: one look at all connections now and then, no timer for each request.

    A connection is overdue when one look after the other finds it in the same state for too long.
    """

    def __init__(self, context: WireContext) -> None:
        self._context = context
        self._allowed_s = context.limits.allowed_s()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = self._context.loop
        self._timer = loop.call_later(until_next(self._context.limits.sweep_s, loop.time()), self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.start()
        self._context.heads.refresh()
        self._context.connection_limit.tell()
        self.sweep(self._context.loop.time())

    def sweep(self, now: float) -> None:
        allowed_s = self._allowed_s
        if self._context.connection_limit.is_crowded(self._context.open_connections):
            # Places are short: clients that ask for nothing have to give theirs up.
            allowed_s = (min(allowed_s[IDLE], self._context.limits.crowded_idle_s), *allowed_s[1:])
        # A copy, because aborting may change the set.
        for connection in tuple(self._context.connections):
            if connection.stall.is_overdue(connection.progress(), now, allowed_s):
                connection.give_up()
