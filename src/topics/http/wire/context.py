"""What all connections of one server share."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from topics.http.door.callers import Callers
from topics.http.door.connection_limit import ConnectionLimit
from topics.http.door.keys import KeyRing
from topics.http.door.readiness import Readiness
from topics.http.door.request_room import SMALL_BYTES, RequestRoom
from topics.http.door.tickets import Tickets
from topics.http.wire.answer_heads import Heads
from topics.http.wire.crowd import Crowd
from topics.http.wire.known_requests import KnownRequests
from topics.http.wire.request_log import RequestLog
from topics.http.wire.routing import RouteTree
from topics.values import MIB, Settings
from topics.values.clock import until_next

if TYPE_CHECKING:
    from topics.http.wire.channel import Channel

logger = logging.getLogger("topics.http")

# So much of one turn of the loop may go into saying goodbye.
PARTING_S = 0.01
# What a connection may be doing for too long; the order of `Limits.allowed_s`.
IDLE, HEAD, BODY, WRITE, LINGERING, WORKING = range(6)


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
    known_requests: KnownRequests = field(default_factory=KnownRequests)
    # Connections speaking plain request and answer; the timeouts look at these.
    connections: "set[Channel]" = field(default_factory=set)
    # Connections that became a stream or a socket; their owners look after them.
    streams: "set[Channel]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Connections that are read together; None where that cannot be.
    crowd: Crowd | None = None

    # Gives back memory that is only kept to be faster; called when there is none left.
    relieve: Callable[[], None] = field(default=_nothing_to_give)

    # Looked at for every request, so not worth a detour through the settings.
    max_body_bytes: int = field(init=False)
    ignores_unknown: bool = field(init=False)
    # Bodies of this size need neither be judged nor counted.
    small_body_bytes: int = field(init=False)
    connection_limit: ConnectionLimit = field(init=False)
    request_room: RequestRoom = field(init=False)
    partings: "Partings" = field(init=False)

    def __post_init__(self) -> None:
        self.max_body_bytes = self.settings.max_body_bytes
        self.ignores_unknown = self.settings.unknown_keys == "ignore"
        self.connection_limit = ConnectionLimit(self.settings)
        self.request_room = RequestRoom(self.max_body_bytes)
        self.partings = Partings(self.loop)
        self.small_body_bytes = min(self.max_body_bytes, SMALL_BYTES)

    @property
    def open_connections(self) -> int:
        return len(self.connections) + len(self.streams)

    def busy(self) -> bool:
        """True while a request is unanswered, a stream is open or a handler still runs."""
        return bool(self.streams or self.tasks) or any(connection.busy for connection in self.connections)


class Partings:
    """What is to be done when connections end: a thousand may at once, each with hundreds of subscriptions.

    Usually it is done in that moment. What is left after some milliseconds is for the next turn of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._spent_s = 0.0
        self._is_next_turn_asked_for = False

    def add(self, closers: Iterable[Callable[[], None]]) -> None:
        self._waiting.extend(closers)
        self._go_on(PARTING_S)
        if not self._is_next_turn_asked_for:
            self._is_next_turn_asked_for = True
            self._loop.call_soon(self._next_turn)

    def finish(self) -> None:
        """The server stops: nothing is left to others."""
        self._go_on(inf)

    def _next_turn(self) -> None:
        self._is_next_turn_asked_for = False
        self._spent_s = 0.0
        if self._waiting:
            self.add(())

    def _go_on(self, until_s: float) -> None:
        began_s = perf_counter() - self._spent_s
        while self._waiting and perf_counter() - began_s < until_s:
            closer = self._waiting.popleft()
            try:
                closer()
            except Exception:
                logger.exception("a close callback failed")
        self._spent_s = perf_counter() - began_s


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
            if is_overdue(connection, now, allowed_s):
                connection.give_up()


def is_overdue(connection: "Channel", now: float, allowed_s: tuple[float, ...]) -> bool:
    state = connection.progress()
    if state != connection.stalled_state:
        connection.stalled_state = state
        connection.stalled_since = now
        return False
    return now - connection.stalled_since >= allowed_s[state[0]]
