"""A request and its reply: all that a handler sees of HTTP."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from io import BytesIO
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from topics.core import ApiError, OutcomeUnknown, short_of_memory
from topics.core.measurements import TimedSteps
from topics.http.admission.address import is_loopback_address, shown_address
from topics.http.admission.limits import RequestRoom
from topics.http.compression import (
    INLINE_BYTES,
    LEAST_BYTES,
    StreamEncoder,
    chosen_encoding,
    compress,
    encoding_headers,
)
from topics.http.known_heads import KnownHead
from topics.http.request import ID_HEADER, Request
from topics.http.request_log import log_fields
from topics.http.response_heads import EVENTS, JSON, HeaderList
from topics.http.stream import OpenStream, Stream, StreamOutput, UpgradeChannel, Upgraded
from topics.storage import is_full

if TYPE_CHECKING:
    from topics.http.context import WireContext

logger = logging.getLogger("topics.http")

# Body, status, content type, headers.
Reply = tuple[bytes, int, bytes, HeaderList | None]


class ReplyChannel(UpgradeChannel, Protocol):
    """Where the reply to a request goes: a connection of HTTP/1.1, or a stream of HTTP/2."""

    context: "WireContext"
    # Pieces of a streamed body are framed as chunks.
    uses_chunks: ClassVar[bool]
    # The status with which another protocol begins.
    upgrade_status: ClassVar[int]

    @property
    def has_waiting(self) -> bool:
        """Whether a reply may let a request start."""

    def send(
        self, exchange: "Exchange", body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        """Send the whole reply, which may come before all of the request's body."""

    def send_continue(self, exchange: "Exchange") -> None:
        """Ask the client for the body."""

    def start_next(self) -> None:
        """Start the requests that only waited for `Exchange.let_next_start`."""

    def hand_over(self, stream: OpenStream, *, is_upgrade: bool, is_endless: bool) -> bool:
        """Leave the connection to a stream. Return False if the client has gone."""

    def begin_stream(self, content_type: bytes, headers: HeaderList | None, *, chunked: bool) -> None:
        """Send the head of a reply of unknown length."""

    def output(self) -> StreamOutput: ...

    def get_extra_info(self, name: str) -> Any:
        """The same as of a transport."""

    def abort(self) -> None:
        """End it without a word."""


class Exchange(Request):
    """A request and its one reply, which may be given after the handler has returned.

    A second reply does nothing, and neither does a reply to a client that has gone.
    """

    __slots__ = (
        "_channel",
        "_closers",
        "_pieces",
        "_streaming",
        "answered",
        "closed",
        "closes",
        "complete",
        "http10",
        "kept_reply",
        "known",
        "lets_next_start",
        "may_upgrade",
        "refusal",
    )

    def __init__(
        self,
        channel: ReplyChannel,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        closes: bool = False,
        http10: bool = False,
        may_upgrade: bool = False,
        known: KnownHead | None = None,
        body: bytes = b"",
    ) -> None:
        """`known`: an earlier request with the same head was admitted, and this one is complete."""
        self._channel: ReplyChannel | None = channel
        self._closers: list[Callable[[], None]] | None = None
        self._holds = 0
        self._query = None
        self._streaming: ReplyChannel | None = None
        self.method_bytes = method
        self.target = target
        self.headers = headers
        self.body = body
        self.received = len(body)
        self.unknown_fields = None
        self.page = None
        self.allow = b""
        self.started = 0.0
        self.known = known
        if known is None:
            self.complete = False
            self.route = self.key = None
            self.name = ""
            self.params = ()
            # A reply that carries the id of its request has a head of its own.
            self.plain = not (closes or http10 or ID_HEADER in headers)
        else:
            self.complete = self.plain = True
            self.started = perf_counter()
            self.route = known.route
            self.key = known.key
            self.name = known.name
            self.params = known.params
        # The reply was given, or nobody waits for one.
        self.answered = False
        # The client has gone without a reply.
        self.closed = False
        # The connection ends with the reply.
        self.closes = closes
        self.http10 = http10
        # What follows this request may belong to another protocol.
        self.may_upgrade = may_upgrade
        # The effect of the request has its place in the order of the log: the next request may start.
        self.lets_next_start = False
        # A reply that waits until earlier requests of the connection are answered.
        self.kept_reply: Reply | None = None
        # A body that came in several pieces. A list would take more memory: chunks may be tiny. And this
        # hands out the whole of it without another copy, which takes 30 ms for 60 MB.
        self._pieces: BytesIO | None = None
        # Decided before the request is started: the error, and a status other than its usual one.
        self.refusal: tuple[ApiError, int] | None = None

    @property
    def parked(self) -> bool:
        """Its handler waits to hear that the client has gone."""
        return self._closers is not None

    def client(self) -> str | None:
        channel = self._channel or self._streaming
        address = None if channel is None else channel.get_extra_info("peername")
        return shown_address(*address[:2]) if address else None

    def scheme(self) -> str:
        channel = self._channel
        if channel is None:
            return "http"
        if channel.get_extra_info("sslcontext") is not None:
            return "https"
        peer = channel.get_extra_info("peername")
        forwarded = self.headers.get(b"x-forwarded-proto", b"").strip().lower()
        is_secure = forwarded == b"https" and bool(peer) and is_loopback_address(peer[0].partition("%")[0])
        return "https" if is_secure else "http"

    def own_address(self) -> str | None:
        if self._channel is None:
            return None
        address = self._channel.get_extra_info("sockname")
        return str(address[0]) if address else None

    # Replies

    def reply(
        self,
        body: bytes,
        status: int = 200,
        content_type: bytes = JSON,
        headers: HeaderList | None = None,
        is_packed: bool = False,
    ) -> None:
        """Send the whole reply. `is_packed`: the body is compressed already."""
        channel = self._channel
        if channel is None:
            return
        if self.unknown_fields is not None:
            # The handler has only read, and nothing was wrong with the request but these.
            self.fail(self.unknown_fields.refusal())
            return
        if len(body) >= LEAST_BYTES and b"accept-encoding" in self.headers and not is_packed:
            encoding = self._encoding()
            if encoding:
                self._reply_compressed(encoding, body, status, content_type, headers)
                return
        channel.context.request_log.finished(self, status, self._closers is not None)
        self.answered = True
        self._channel = None
        if self._holds:
            self._give_back()
        channel.send(self, body, status, content_type, headers)

    def _encoding(self) -> bytes:
        """Return the encoding that the client asks for; empty for none."""
        accepted = self.headers.get(b"accept-encoding")
        return b"" if accepted is None or self.method_bytes == b"HEAD" else chosen_encoding(accepted)

    def _reply_compressed(
        self, encoding: bytes, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        headers = [*(headers or ()), *encoding_headers(encoding)]
        if len(body) <= INLINE_BYTES:
            self.reply(compress(body, encoding), status, content_type, headers, is_packed=True)
        else:
            self.run(self._compress_on_thread(encoding, body, status, content_type, headers))

    async def _compress_on_thread(
        self, encoding: bytes, body: bytes, status: int, content_type: bytes, headers: HeaderList
    ) -> None:
        packed = await asyncio.get_running_loop().run_in_executor(None, compress, body, encoding)
        self.reply(packed, status, content_type, headers, is_packed=True)

    def reply_unrouted(self, status: int, headers: HeaderList) -> None:
        """Reply without a body to a request that no route is asked about. It is not counted."""
        channel = self._take_channel()
        if channel is not None:
            channel.send(self, b"", status, JSON, headers)

    def _take_channel(self) -> ReplyChannel | None:
        """Return the channel for the one reply. `reply` does the same without this call."""
        channel, self._channel = self._channel, None
        self.answered = True
        if self._holds:
            self._give_back()
        return channel

    def fail(self, error: ApiError, status: int | None = None) -> None:
        channel = self._channel
        if channel is None:
            return
        if self.unknown_fields is not None:
            self.unknown_fields.mention_in(error)
        status = status or error.status
        channel.context.request_log.failed(self, error, status, self._closers is not None)
        self._take_channel()
        if isinstance(error, OutcomeUnknown):
            channel.abort()
            return
        headers: HeaderList = []
        if error.retry_after_s is not None:
            headers.append((b"Retry-After", b"%d" % error.retry_after_s))
        if error.code == "unauthorized":
            headers.append((b"WWW-Authenticate", b"Bearer"))
        elif error.code == "method_not_allowed":
            headers.append((b"Allow", self.allow))
        elif error.code == "shutting_down":
            self.close_after_reply()
        channel.send(self, error.body(), status, JSON, headers)

    def fail_with(self, error: Exception) -> None:
        """Reply with an error that was raised by the handler."""
        if isinstance(error, ApiError):
            self.fail(error)
        elif isinstance(error, MemoryError) and self._streaming is None:
            if self._channel is not None:
                self._channel.context.relieve()
            self.fail(short_of_memory())
        elif isinstance(error, OSError) and error.strerror and self._streaming is None:
            # The path that an OSError may name stays here.
            code = "disk_full" if is_full(error) else "internal"
            self.fail(ApiError(code, f"storage refused it: {error.strerror}"))
        else:
            # What happened is logged, and the client is told nothing about it.
            logger.error("request failed", exc_info=error, extra=log_fields(self, 500))
            if self._streaming is not None:
                # The reply has begun: all that can be told is that it ends here.
                self._streaming.abort()
            else:
                failure = ApiError("internal", "internal error")
                failure.__cause__ = error
                self.fail(failure)

    @property
    def ignores_unknown(self) -> bool:
        return self._channel is not None and self._channel.context.ignores_unknown

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the client goes away before the reply; at once, if it has gone."""
        if self.closed:
            callback()
        elif self._closers is None:
            self._closers = [callback]
        else:
            self._closers.append(callback)

    def let_next_start(self) -> None:
        """Let the next request of the connection start before this one is answered, if it has the same route
        and the same name. The effect of this request has its place in the order of the log."""
        self.lets_next_start = True
        channel = self._channel
        if channel is not None and channel.has_waiting:
            channel.start_next()

    # Streams and other protocols

    def open_stream(self, content_type: bytes, headers: HeaderList | None = None) -> Stream:
        """Reply with a body of unknown length. If the client has gone, the stream is closed already."""
        channel = self._channel
        if channel is None:
            return Stream(None, chunked=False)
        encoding = self._encoding()
        encoder = StreamEncoder(encoding, in_bulk=content_type != EVENTS) if encoding else None
        if encoding:
            headers = [*(headers or ()), *encoding_headers(encoding)]
        chunked = channel.uses_chunks and not self.http10
        stream = Stream(channel.output(), chunked=chunked, encoder=encoder)
        if not self._hand_over(channel, stream, is_upgrade=False, status=200):
            return Stream(None, chunked=False)
        channel.begin_stream(content_type, self.with_own(headers), chunked=chunked)
        return stream

    def upgrade(self) -> Upgraded:
        """Leave the connection to another protocol, which the caller speaks from here."""
        channel = self._channel
        if channel is not None:
            upgraded = Upgraded(channel.output(), channel, self.headers, channel.context.request_room)
            if self._hand_over(channel, upgraded, is_upgrade=True, status=channel.upgrade_status):
                return upgraded
        return Upgraded(None, None, self.headers, RequestRoom(0))

    def _hand_over(self, channel: ReplyChannel, stream: OpenStream, *, is_upgrade: bool, status: int) -> bool:
        """False if the client has gone."""
        waited, self._closers = self._closers is not None, None
        self._take_channel()
        is_endless = self.route is not None and not self.route.counted
        if not channel.hand_over(stream, is_upgrade=is_upgrade, is_endless=is_endless):
            channel.context.request_log.abandoned(self)
            return False
        self._streaming = channel
        channel.context.request_log.finished(self, status, waited)
        return True

    # Running handlers

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run an async handler."""
        channel = self._channel
        if channel is None:
            coroutine.close()
            return
        steps = self._guard(coroutine)
        if self.route is not None:
            steps = TimedSteps(steps, self.route.holds)
        task = channel.context.loop.create_task(steps)
        channel.context.tasks.add(task)
        task.add_done_callback(channel.context.tasks.discard)

    async def _guard(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except asyncio.CancelledError:
            self.fail(ApiError("shutting_down", "the server is shutting down"))
            raise
        except Exception as error:
            self.fail_with(error)

    # For the connection and the admission

    def receive(self, piece: bytes) -> None:
        """Add a piece to the body."""
        self.received += len(piece)
        if self.answered or self.complete:
            return
        if self._pieces is not None:
            self._pieces.write(piece)
        elif self.body:
            self._pieces = BytesIO()
            self._pieces.write(self.body)
            self._pieces.write(piece)
        else:
            self.body = piece

    def receive_into(self, size: int) -> memoryview:
        """Make room for a body of this size, with what has come of it. Raises MemoryError."""
        come = self.body if self._pieces is None else self._pieces.getvalue()
        pieces = BytesIO(bytes(size))
        # Nobody else has these bytes: they are filled in place and become the body in place.
        room = pieces.getbuffer()
        room[: len(come)] = come
        self._pieces = pieces
        return room

    def note_received(self, size: int) -> None:
        """So much has come into the room that `receive_into` has made."""
        self.received += size

    def finish_body(self) -> None:
        self.complete = True
        if self._pieces is not None:
            self.body = self._pieces.getvalue()
            self._pieces = None

    def drop_body(self) -> None:
        self._pieces = None

    def send_continue(self) -> None:
        if self._channel is not None:
            self._channel.send_continue(self)

    def keep_reply(self, reply: Reply) -> None:
        """Keep the reply until all earlier requests of the connection are answered."""
        self.kept_reply = reply

    def close_after_reply(self) -> None:
        """End the connection with the reply to this request."""
        self.plain = False
        self.closes = True

    def refuse_later(self, error: ApiError, status: int) -> None:
        """Refuse it when it is started, and close the connection then."""
        self.refusal = (error, status)
        self.close_after_reply()

    def client_gone(self) -> None:
        if self._channel is None:
            return
        self._channel.context.request_log.abandoned(self)
        self._take_channel()
        self.closed = True
        closers, self._closers = self._closers, None
        for closer in closers or ():
            try:
                closer()
            except Exception:
                logger.exception("a close callback failed")
