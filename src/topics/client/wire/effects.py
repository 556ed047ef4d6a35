"""The effects of operations: requests, pauses and calls, which `blocking` or `async_io` perform.

An operation does no I/O. It is a generator, which yields an effect, receives its result or its error, and
returns its own result.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

R = TypeVar("R")

JSON = "application/json"


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    # How long the server may be silent on purpose, as in a long poll, in addition to the client's timeout.
    wait_s: float = 0.0


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class NotConnected(Exception):
    """The request was not sent."""


class Broken(Exception):
    """The request, or a part of it, was sent, and no complete answer came."""


class ClientClosed(RuntimeError):
    """The client is closed."""

    def __init__(self) -> None:
        super().__init__("this client is closed: make another one, or ask before close()")


class RoundTrip(msgspec.Struct, frozen=True):
    """Send a request and wait for its answer: a `Response`, or `NotConnected` or `Broken`."""

    request: WireRequest


class Begin(msgspec.Struct, frozen=True):
    """Send a request without waiting; the result is for `Finish`."""

    request: WireRequest


class Finish(msgspec.Struct, frozen=True):
    """Wait for the answer to a request that was begun."""

    begun: Any


class Abandon(msgspec.Struct, frozen=True):
    """Drop a request that was begun: its answer is not needed."""

    begun: Any


class Open(msgspec.Struct, frozen=True):
    """Send a request whose answer is a stream; the result is its head as a `Response`, and the stream."""

    request: WireRequest


class Receive(msgspec.Struct, frozen=True):
    """Receive more bytes of a stream: empty at its end, None after `wait_s` of silence."""

    stream: Any
    wait_s: float


class CloseStream(msgspec.Struct, frozen=True):
    stream: Any


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Call(msgspec.Struct, frozen=True):
    """Call a function of the user's, which may be a coroutine function on asyncio."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Attach(msgspec.Struct, frozen=True):
    """A reader begins to use a cursor.

    Gives the function that runs operations for the cursor's `commit`; None on asyncio, where `commit` cannot
    wait and the reader or the client's `close` stores the position.
    """

    cursor: Any


Effect: TypeAlias = (
    RoundTrip | Begin | Finish | Abandon | Open | Receive | CloseStream | Pause | Call | Attach
)
Operation: TypeAlias = Generator[Effect, Any, R]
