"""Limits on what clients occupy: connections, and memory for large request bodies."""

import logging
import resource
from asyncio import Transport

from topics.core import Settings, limit_reached
from topics.http.response_heads import JSON, Heads

logger = logging.getLogger("topics.http")

# Descriptors that connections must leave for journals, segments and sockets of our own.
_RESERVED = 256
# Descriptors of an idle server, and a few for threads; the rest is for segments.
_OWN = 24
# From this share of the places on, idle connections are let go sooner.
_CROWDED = 0.9


class ConnectionLimit:
    """Counts those that are turned away; the ones that are in are counted by the context."""

    def __init__(self, settings: Settings) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = most_connections(settings.max_connections, descriptors)
        self.left_for_segments = left_for_segments(self.most, descriptors)
        self.turned_away = 0
        self._told = 0

    def is_full(self, connections: int) -> bool:
        return connections >= self.most

    def is_crowded(self, connections: int) -> bool:
        return connections >= self.most * _CROWDED

    def turn_away(self, transport: Transport, heads: Heads) -> None:
        """Says why and closes at once: waiting until the client has heard it would take a place."""
        self.turned_away += 1
        error = limit_reached("max_connections", self.most)
        body = error.body()
        head = heads.before_length(error.status, JSON, [(b"Retry-After", b"1")], b"close")
        transport.write(head + b"%d\r\n\r\n%b" % (len(body), body))
        transport.close()

    def tell(self) -> None:
        """Now and then, so that a flood of clients is no flood of log lines."""
        more = self.turned_away - self._told
        if more:
            self._told = self.turned_away
            logger.warning("%d connections turned away: %d are open already", more, self.most)


def most_connections(setting: int, descriptors: int) -> int:
    """Return the setting, as far as the operating system allows it; 0 asks for all that it allows."""
    if descriptors == resource.RLIM_INFINITY:
        return setting or 1 << 31
    allowed = max(descriptors - _RESERVED, descriptors // 2)
    return min(setting or allowed, allowed)


def left_for_segments(connections: int, descriptors: int) -> int:
    """Return the descriptors that are free when every connection is taken."""
    if descriptors == resource.RLIM_INFINITY:
        return 1 << 31
    return max(descriptors - connections - _OWN, 0)


def raise_descriptor_limit() -> None:
    """As many open files as we may have without further rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("cannot raise the limit of open files above %d: %s", soft, error)


# The number of bodies of the largest size, over all connections.
LARGEST_BODIES = 32
# Smaller ones are not counted: a connection can have one of them in memory, and connections are counted.
SMALL_BYTES = 64 * 1024


class RequestRoom:
    """Bytes that are held by requests not answered yet."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_bytes = LARGEST_BODIES * max_body_bytes
        self.held = 0

    def take(self, count: int) -> None:
        if self.held + count > self.max_bytes:
            raise limit_reached("max_request_bytes", self.max_bytes)
        self.held += count

    def give(self, count: int) -> None:
        self.held -= count
