"""A request and its answer: all that a handler gets to see of HTTP."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from topics.http.door.listen_address import is_loopback_address
from topics.http.wire.answer_heads import EVENTS, JSON, HeaderList
from topics.http.wire.channel import RAW, STREAM, Stream, Upgraded
from topics.http.wire.compression import (
    INLINE_BYTES,
    LEAST_BYTES,
    chosen_encoding,
    compress,
    encoding_headers,
    stream_encoder,
)
from topics.http.wire.request import Request
from topics.http.wire.request_log import log_fields
from topics.storage import is_full
from topics.values import ApiError, Misnamed, OutcomeUnknown, short_of_memory
from topics.values.holding import TimedSteps

if TYPE_CHECKING:
    from topics.http.wire.pipeline import Pipeline

logger = logging.getLogger("topics.http")


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


class Exchange(Request):
    """Answered exactly once, in the handler or later; a second answer, or one to a client that has gone, does
    nothing."""

    # Those who answer connections one after the other leave it aside, as they do one with more behind.
    _behind: ClassVar[bool] = True

    __slots__ = (
        "_closers",
        "_connection",
        "_streaming",
        "closed",
        "closes",
        "complete",
        "http10",
        "pieces",
        "refusal",
    )

    def __init__(
        self, connection: "Pipeline", method: bytes, target: bytes, headers: dict[bytes, bytes]
    ) -> None:
        self._connection: Pipeline | None = connection
        self._closers: list[Callable[[], None]] | None = None
        self._holds = 0
        self._query = None
        self._streaming: Pipeline | None = None
        self.method_bytes = method
        self.target = target
        self.headers = headers
        self.body = b""
        self.key = None
        self.misnamed = None
        self.page = None
        self.route = None
        self.name = ""
        self.params = ()
        self.started = 0.0
        # The client has gone without an answer.
        self.closed = False

        # For the connection: has the body arrived, and what becomes of the connection after the answer?
        self.complete = False
        self.received = 0
        # A body that came in several pieces. Not a list of them: chunks may be tiny, and objects are not; and
        # this hands out the whole of it without another copy, which of 60 MB takes 30 ms.
        self.pieces: BytesIO | None = None
        self.plain = True
        self.closes = False
        self.http10 = False
        self.allow = b""
        # Decided before its turn came: the error, and a status other than its usual one.
        self.refusal: tuple[ApiError, int] | None = None

    @property
    def answered(self) -> bool:
        return self._connection is None

    @property
    def parked(self) -> bool:
        """Its handler waits to hear that the client has gone."""
        return self._closers is not None

    def client(self) -> str | None:
        connection = self._connection or self._streaming
        return None if connection is None else connection.peer()

    def scheme(self) -> str:
        connection = self._connection
        if connection is None:
            return "http"
        if connection.transport.get_extra_info("sslcontext") is not None:
            return "https"
        peer = connection.transport.get_extra_info("peername")
        forwarded = self.headers.get(b"x-forwarded-proto", b"").strip().lower()
        is_secure = forwarded == b"https" and bool(peer) and is_loopback_address(peer[0].partition("%")[0])
        return "https" if is_secure else "http"

    def own_address(self) -> str | None:
        if self._connection is None:
            return None
        address = self._connection.transport.get_extra_info("sockname")
        return str(address[0]) if address else None

    # Answering

    def reply(
        self, body: bytes, status: int = 200, content_type: bytes = JSON, headers: HeaderList | None = None
    ) -> None:
        connection = self._connection
        if connection is None:
            return
        if len(body) >= LEAST_BYTES and b"accept-encoding" in self.headers:
            encoding = self._encoding()
            if encoding:
                self._reply_compressed(encoding, body, status, content_type, headers)
                return
        connection.context.request_log.finished(self, status, self._closers is not None)
        self._connection = None
        if self._holds:
            self._give_back()
        if self.plain and status == 200 and content_type is JSON and headers is None:
            connection.send(body)
        else:
            connection.send_special(self, status, content_type, body, headers)

    def _encoding(self) -> bytes:
        """The one that the client asks for; empty for none."""
        accepted = self.headers.get(b"accept-encoding")
        return b"" if accepted is None or self.method_bytes == b"HEAD" else chosen_encoding(accepted)

    def _reply_compressed(
        self, encoding: bytes, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        if len(body) <= INLINE_BYTES:
            packed = compress(body, encoding)
            self._reply_special(status, content_type, packed, [*(headers or ()), *encoding_headers(encoding)])
        else:
            self.run(self._compress_beside(encoding, body, status, content_type, headers))

    async def _compress_beside(
        self, encoding: bytes, body: bytes, status: int, content_type: bytes, headers: HeaderList | None
    ) -> None:
        packed = await asyncio.get_running_loop().run_in_executor(None, compress, body, encoding)
        self._reply_special(status, content_type, packed, [*(headers or ()), *encoding_headers(encoding)])

    def _reply_special(self, status: int, content_type: bytes, body: bytes, headers: HeaderList) -> None:
        connection = self._connection
        if connection is None:
            return
        connection.context.request_log.finished(self, status, self._closers is not None)
        self._take_connection()
        connection.send_special(self, status, content_type, body, headers)

    def is_noted(self, elapsed_s: float) -> bool:
        """Answered now, it would be more than counted; as far as is known, if its client has gone."""
        return self._connection is None or elapsed_s >= self._connection.context.request_log.notable_s

    def reply_noted(self, body: bytes, started: float) -> None:
        """The usual answer, of which more than a number is kept."""
        self.reply(body)

    def reply_uncounted(self, body: bytes) -> bool:
        """The usual answer, to a request that is counted together with others. True if sent."""
        connection = self._connection
        if connection is None:
            return False
        self._connection = None
        if self._holds:
            self._give_back()
        if self.plain:
            connection.send(body)
        else:
            connection.send_special(self, 200, JSON, body, None)
        return True

    def reply_unrouted(self, status: int, headers: HeaderList) -> None:
        """An answer without a body to what no route is asked about, and that is not counted."""
        connection = self._take_connection()
        if connection is not None:
            connection.send_special(self, status, JSON, b"", headers)

    def _take_connection(self) -> "Pipeline | None":
        """For an answer, which is the only one. The usual ones do the same without this call."""
        connection, self._connection = self._connection, None
        if self._holds:
            self._give_back()
        return connection

    def fail(self, error: ApiError, status: int | None = None) -> None:
        connection = self._connection
        if connection is None:
            return
        if self.misnamed is not None:
            self.misnamed.mention_in(error)
        status = status or error.status
        connection.context.request_log.failed(self, error, status, self._closers is not None)
        self._take_connection()
        if isinstance(error, OutcomeUnknown):
            connection.transport.abort()
            return
        headers: HeaderList = []
        if error.retry_after_s is not None:
            headers.append((b"Retry-After", b"%d" % error.retry_after_s))
        if error.code == "unauthorized":
            headers.append((b"WWW-Authenticate", b"Bearer"))
        elif error.code == "method_not_allowed":
            headers.append((b"Allow", self.allow))
        elif error.code == "shutting_down":
            self.closes = True
        connection.send_special(self, status, JSON, error.body(), headers)

    def fail_with(self, error: Exception) -> None:
        """Whatever was raised on the way to the answer becomes the answer."""
        if isinstance(error, ApiError):
            self.fail(error)
        elif isinstance(error, MemoryError) and self._streaming is None:
            if self._connection is not None:
                self._connection.context.relieve()
            self.fail(short_of_memory())
        elif isinstance(error, OSError) and error.strerror and self._streaming is None:
            # The path that an OSError may name stays here.
            code = "disk_full" if is_full(error) else "internal"
            self.fail(ApiError(code, f"storage refused it: {error.strerror}"))
        else:
            self._fail_unexpectedly(error)

    def _fail_unexpectedly(self, error: Exception) -> None:
        """Log what happened, tell the client nothing about it."""
        logger.error("request failed", exc_info=error, extra=log_fields(self, 500))
        if self._streaming is not None:
            # The answer has begun; all that is left to say is that it ends here.
            self._streaming.transport.abort()
        else:
            failure = ApiError("internal", "internal error")
            failure.__cause__ = error
            self.fail(failure)

    def note(self, misnamed: Misnamed) -> None:
        if self._connection is not None and self._connection.context.ignores_unknown:
            misnamed.forget_unknown()
        if misnamed:
            super().note(misnamed)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back at once when the client goes away before the answer."""
        if self.closed:
            callback()
        elif self._closers is None:
            self._closers = [callback]
        else:
            self._closers.append(callback)

    def open_stream(self, content_type: bytes, headers: HeaderList | None = None) -> Stream:
        """Answer with a body of unknown length; if the client has gone, the stream is closed already."""
        encoding = self._encoding()
        encoder = stream_encoder(encoding, in_bulk=content_type != EVENTS) if encoding else None
        if encoding:
            headers = [*(headers or ()), *encoding_headers(encoding)]
        connection = self._leave(STREAM)
        return Stream(
            connection, content_type, self.with_own(headers), chunked=not self.http10, encoder=encoder
        )

    def upgrade(self) -> Upgraded:
        """Take the bare connection, before any answer; the caller speaks the other protocol from here."""
        return Upgraded(self._leave(RAW), self.headers)

    def _leave(self, mode: int) -> "Pipeline | None":
        connection = self._take_connection()
        waited, self._closers = self._closers is not None, None
        if connection is None:
            return None
        if self.route is not None and not self.route.counted:
            connection.leave_unheard()
        if not connection.hand_over(mode):
            connection.context.request_log.abandoned(self)
            return None
        self._streaming = connection
        connection.context.request_log.finished(self, connection.raw_status if mode == RAW else 200, waited)
        return connection

    # Running handlers

    def run(self, coroutine: Coroutine[Any, Any, None], *, until_closed: bool = False) -> None:
        """Run an async handler; with `until_closed` it is cancelled when the client goes away."""
        connection = self._connection
        if connection is None:
            coroutine.close()
            return
        steps = self._guard(coroutine)
        if self.route is not None:
            steps = TimedSteps(steps, self.route.holds)
        task = connection.context.loop.create_task(steps)
        connection.context.tasks.add(task)
        task.add_done_callback(connection.context.tasks.discard)
        if until_closed:
            self.on_close(partial(_cancel, task))

    async def _guard(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except asyncio.CancelledError:
            self.fail(ApiError("shutting_down", "the server is shutting down"))
            raise
        except Exception as error:
            self.fail_with(error)

    # For the connection and the admission

    def refuse_later(self, error: ApiError, status: int) -> None:
        """When its turn comes; and nothing after it on this connection."""
        self.refusal = (error, status)
        self.closes = True

    def client_gone(self) -> None:
        if self._connection is None:
            return
        self._connection.context.request_log.abandoned(self)
        self._take_connection()
        self.closed = True
        closers, self._closers = self._closers, None
        for closer in closers or ():
            try:
                closer()
            except Exception:
                logger.exception("a close callback failed")

    def leave_convoy(self, started: float, body: bytes = b"", key: bytes | None = None) -> "Exchange":
        """It is handled by itself, as it came."""
        return self
