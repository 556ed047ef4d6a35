"""The server as route handlers see it, how they are declared, and how their answers are timed."""

import asyncio
import sys
from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

import topics
from topics.core import ApiError, TopicConfig
from topics.engine.node import Node
from topics.flow.large_deletes import Deletions
from topics.flow.watch.sessions import WatchSessions
from topics.http.admission.address import parse_base_path
from topics.http.admission.auth import ApiKey, KeyRing, Tickets, is_revoked
from topics.http.admission.readiness import Readiness
from topics.http.console.attention import Attention
from topics.http.exchange import Exchange
from topics.http.open_streams import OpenStreams
from topics.http.routing import Enter, Route
from topics.log import Steps, Topic

if TYPE_CHECKING:
    from topics.http.server import Server

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


class Parked(Protocol):
    @property
    def key(self) -> ApiKey | None: ...

    def release(self) -> None: ...


class Service:
    """A node, and what the routes of its server keep between requests."""

    # Made with the routes, which need the service.
    server: "Server"

    def __init__(
        self, node: Node, keyring: KeyRing | None = None, readiness: Readiness | None = None
    ) -> None:
        self.node = node
        self.engine = node.engine
        self.settings = node.settings
        self.admission = node.admission
        self.keyring = keyring or KeyRing([])
        self.readiness = readiness or Readiness()
        self.base_path = parse_base_path(node.settings.base_path)
        self.tickets = Tickets(base=self.base_path.encode())
        self.streams = OpenStreams(node.settings)
        self.sessions = WatchSessions(node.settings.max_watch_sessions, node.engine.steady_ms)
        self.deletions = Deletions(node.engine)
        # By dead-letter topic, the records that redrives move out of it now.
        self.moving: dict[Topic, set[int]] = {}
        self.attention = Attention(node)
        self.started_ms = int(time() * 1000)
        self._started_s = monotonic()
        # Streams that wait for topics to come.
        self.awaiting: set[Callable[[Topic], None]] = set()
        node.engine.on_shown.append(self._topic_shown)
        # Long-polls in waiting; they are answered when the server stops.
        self.parked: set[Parked] = set()

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document, built for the first request, so that the start does not pay for it."""
        from topics.http.openapi import build

        document = build(self.server.routes)
        document["info"]["version"] = topics.__version__
        document["servers"] = [{"url": self.base_path or "/"}]
        return msgspec.json.encode(document)

    def attach(self, server: "Server") -> None:
        self.server = server

    def end_waiting(self, *, of_revoked: bool = False) -> None:
        """Answer requests that wait: all of them, or those of keys that were removed."""
        for parked in tuple(self.parked):
            if not of_revoked or is_revoked(parked.key):
                parked.release()

    def _topic_shown(self, topic: Topic) -> None:
        for tell in tuple(self.awaiting):
            tell(topic)

    def topic(self, exchange: Exchange) -> Topic:
        """The topic in the path, for a request with which nothing else is wrong: that it is not there is told
        before what the request misnames."""
        topic = self.engine.require(exchange.name)
        if exchange.unknown_fields is not None:
            exchange.refuse_unknown_fields()
        return topic

    def topic_to_read(self, exchange: Exchange) -> Topic:
        """The topic in the path, for a request that reads its records."""
        self.topic(exchange)
        return self.admission.read(exchange.name)

    def current_topic(self, exchange: Exchange) -> Topic:
        """The topic in the path, for a request that is told about it and reads no records."""
        topic = self.topic(exchange)
        self.admission.bring_up_to_date(topic)
        return topic

    def uptime_ms(self) -> int:
        return int((monotonic() - self._started_s) * 1000)


def when_copied(service: Service) -> Enter:
    """Admission of reads that wait until the topic has the copies that its routers owe it."""
    return service.admission.read_copied


def in_reading_order(service: Service) -> Enter:
    """Admission of reads that wait for those of topics with a higher priority, too."""
    return service.admission.read_in_turn


class Routes:
    """Routes that modules declare.

    A handler gets the service, the exchange, and the decoded body if the route `accepts` one.
    """

    def __init__(self) -> None:
        self._declared: list[Callable[[Service], Route]] = []

    def add(
        self, method: str, template: str, *, enter: Callable[[Service], Enter] | None = None, **options: Any
    ) -> Callable[[Function], Function]:
        """Declare the function below as the handler of a route. `options` are fields of `Route`."""

        def declare(handler: Function) -> Function:
            def bind(service: Service) -> Route:
                entered = None if enter is None else enter(service)
                return Route(method, template, partial(handler, service), enter=entered, **options)

            self._declared.append(bind)
            return handler

        return declare

    def bind(self, service: Service) -> list[Route]:
        return [bind(service) for bind in self._declared]


# A module declares its routes here when it is imported.
routes = Routes()


async def load(*modules: str) -> None:
    """Import on a thread what has not been imported yet, while other requests go on."""
    missing = [name for name in modules if not _is_whole(name)]
    if missing:
        await asyncio.to_thread(lambda: [import_module(name) for name in missing])


def _is_whole(name: str) -> bool:
    """A module is listed before it is complete, and using it then waits for the thread that imports it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def elapsed_ms(exchange: Exchange) -> float:
    return (perf_counter() - exchange.started) * 1000


def answer(exchange: Exchange, body: dict[str, Any], status: int = 200, **performance: float) -> None:
    """A success: the data itself, and how long it took."""
    body["performance"] = {"server_total_ms": round(elapsed_ms(exchange), 3), **performance}
    exchange.reply(msgspec.json.encode(body), status)


async def in_turns(steps: Steps[Result]) -> Result:
    """Between two steps, others have their turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await asyncio.sleep(0)


def check_dead_letter(key: ApiKey | None, config: TopicConfig) -> None:
    """Records move to the dead-letter topic by themselves: a key must not send them where it may not go."""
    if config.dead_letter is not None:
        check_name(key, config.dead_letter)


def check_name(key: ApiKey | None, name: str) -> None:
    """For names in bodies and queries; those in paths are checked before there is a body."""
    if key is not None and not key.allows(name):
        raise ApiError("forbidden", f'this key may not use the name "{name}"', {"topic": name})
