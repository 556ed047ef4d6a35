"""What an operation asks of the outside. Operations do no I/O themselves.

An operation is a generator: it yields one of these, is sent what came of it (or thrown what went wrong), and
returns its result. `blocking` runs it with sockets and sleeps, `aio` with asyncio; both say the same.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import msgspec

R = TypeVar("R")

JSON = "application/json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    # How long the server may be silent, on top of the client's own timeout: long-polls are silent on purpose.
    wait_s: float = 0.0


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class NotConnected(Exception):
    """Nothing of the request was sent."""


class Broken(Exception):
    """The request was sent, or part of it, and no whole answer came back."""


class ClientClosed(RuntimeError):
    """A client was asked after it had been closed."""

    def __init__(self) -> None:
        super().__init__("this client is closed: make another one, or ask before close()")


class Exchange(msgspec.Struct, frozen=True):
    """Send a request and wait for its answer: `Response`, or one of the two exceptions above."""

    request: Request


class Begin(msgspec.Struct, frozen=True):
    """Send a request, and do not wait: gives something that `Finish` takes."""

    request: Request


class Finish(msgspec.Struct, frozen=True):
    """The answer to a request that was begun."""

    begun: Any


class Abandon(msgspec.Struct, frozen=True):
    """An answer that nothing needs any more."""

    begun: Any


class Open(msgspec.Struct, frozen=True):
    """Send a request whose answer is a stream: gives (Response with what came so far as body, stream)."""

    request: Request


class Receive(msgspec.Struct, frozen=True):
    """More bytes of a stream; empty at its end, None after `wait_s` of silence."""

    stream: Any
    wait_s: float


class CloseStream(msgspec.Struct, frozen=True):
    stream: Any


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Call(msgspec.Struct, frozen=True):
    """Call a function of the user's: under asyncio it may be a coroutine function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Attach(msgspec.Struct, frozen=True):
    """A reader begins to use a cursor.

    Gives the function that runs operations for the cursor's `commit`; None on asyncio, where `commit` cannot
    wait and the reader or the client's `close` stores the position.
    """

    cursor: Any


Effect: TypeAlias = Exchange | Begin | Finish | Abandon | Open | Receive | CloseStream | Pause | Call | Attach
Operation: TypeAlias = Generator[Effect, Any, R]
