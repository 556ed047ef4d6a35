"""Publishing over a WebSocket: a write as HTTP takes it, through the same door, acknowledged when committed.

A client may publish without waiting for acknowledgements, and its records keep their order: behind a publish
that waits for its turn all later ones of the socket wait, and the socket is not read meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from topics.flow.large_writes import get_ready
from topics.http.routes.records.appends import append_answer
from topics.http.routes.service import Service
from topics.log import (
    AppendBody,
    AppendForm,
    AppendOp,
    AppendRequest,
    Cut,
    check_append,
    disables_backpressure,
    request_of,
)
from topics.values import ApiError, Misnamed, OutcomeUnknown, invalid

if TYPE_CHECKING:
    from topics.http.wire.websocket import Socket

logger = logging.getLogger("topics.http")

_encode = msgspec.json.encode


class NotACommand(Exception):
    """The message is no object, names no known operation, or lacks what the operation cannot do without."""


# What a client did wrong, or may not do; anything else that is raised is our own mistake.
MISTAKES = (ApiError, NotACommand, msgspec.DecodeError, RecursionError)


class PublishBody(AppendBody, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A write request as HTTP takes it, with what makes it a command."""

    op: Any = None
    request_id: Raw = Raw(b"null")
    topic: str | None = None


PUBLISH = AppendForm(PublishBody)
Obey = Callable[["Publication"], Coroutine[Any, Any, None]]


def error_message(request_id: bytes, code: str, message: str, detail: dict[str, Any] | None = None) -> bytes:
    return b'{"op":"error","request_id":%b,"code":%b,"message":%b%b}' % (
        request_id,
        _encode(code),
        _encode(message),
        b',"detail":%b' % _encode(detail) if detail else b"",
    )


class Message:
    """What a client has sent over a socket, and what it names that does not belong there."""

    __slots__ = ("_ignores_unknown", "misnamed", "request_id", "socket", "text")

    def __init__(self, socket: "Socket", text: bytes, *, ignores_unknown: bool) -> None:
        self._ignores_unknown = ignores_unknown
        self.socket = socket
        self.text = text
        # As the text it came in, to be sent back the same.
        self.request_id = b"null"
        self.misnamed: Misnamed | None = None

    def note(self, misnamed: Misnamed) -> None:
        """To be told with any other mistake, and otherwise when there is no other."""
        if self._ignores_unknown:
            misnamed.forget_unknown()
        if self.misnamed is not None:
            self.misnamed.join(misnamed)
        elif misnamed:
            self.misnamed = misnamed

    def refuse_misnamed(self) -> None:
        if self.misnamed is not None:
            raise self.misnamed.refusal()

    def refuse(self, error: Exception) -> None:
        """For what `MISTAKES` lists."""
        mistake = error if isinstance(error, ApiError) else invalid(str(error))
        if self.misnamed is not None:
            self.misnamed.mention_in(mistake)
        code = mistake.code if mistake is error else "invalid_json"
        self.socket.send(error_message(self.request_id, code, mistake.message, mistake.detail))


class Publication:
    """One message that publishes."""

    __slots__ = ("_started", "is_held", "is_over", "message", "obey", "queue", "topic")

    def __init__(
        self, queue: "Publications", topic: str, message: Message, obey: "Obey | None" = None
    ) -> None:
        """`obey` does what a large message says, whatever that is, in its turn."""
        self._started = perf_counter()
        self.queue = queue
        self.topic = topic
        self.message = message
        self.obey = obey
        # It has to wait for its turn, and others behind it.
        self.is_held = False
        # Handed to the log, or refused.
        self.is_over = False

    @property
    def closed(self) -> bool:
        return self.queue.socket.closed

    def is_patient(self) -> bool:
        return disables_backpressure(self.message.text)

    def acknowledge(self, with_seqs: bool, op: AppendOp) -> None:
        answer = append_answer(op, self._started, with_seqs=with_seqs)
        self.queue.socket.send(b'{"op":"ack","request_id":%b,%b' % (self.message.request_id, answer[1:]))

    def refuse(self, error: Exception) -> None:
        """What is no mistake of the client's is logged, and not told."""
        self.is_over = True
        if isinstance(error, OutcomeUnknown):
            self.queue.socket.abort()
            return
        if not isinstance(error, MISTAKES):
            logger.error("a publish failed", exc_info=error)
            error = ApiError("internal", "internal error")
        self.message.refuse(error)

    async def write_large(self, cut: Cut) -> None:
        """Its records were cut out of the message."""
        message, service = self.message, self.queue.service
        request, patient = await asyncio.to_thread(request_of, cut, None, message, PUBLISH.decode)
        await get_ready(service.engine, service.doors, self.topic, request, patient=patient)
        if not self.closed:
            self.hand_over(request)

    def hand_over(self, request: AppendRequest) -> None:
        """To the log, which answers."""
        self.is_over = True
        self.queue.service.append(
            self.topic,
            request,
            self.queue.socket.key,
            partial(self.acknowledge, request.return_seqs),
            self.refuse,
            self.message.misnamed,
        )

    def fail_with(self, error: Exception) -> None:
        """Its turn came, and this was raised."""
        self.refuse(error)
        self.queue.follow()


class Publications:
    """The publishes of one socket, in the order in which they came."""

    def __init__(self, service: Service, socket: "Socket") -> None:
        self.service = service
        self._waiting: deque[Publication] = deque()
        # While a large message is being taken apart.
        self._task: asyncio.Task[None] | None = None
        self.socket = socket

    def add(self, publication: Publication) -> None:
        self._waiting.append(publication)
        if len(self._waiting) == 1:
            self._go_on()

    def follow(self) -> None:
        """The one that was held is over."""
        self._waiting.popleft()
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            if first.obey is not None:
                first.is_held = True
                self._task = asyncio.ensure_future(self._obey(first))
                break
            try:
                self.service.doors.append(
                    first, first.topic, len(first.message.text), self._write, Publication.is_patient
                )
            except Exception as error:
                # Whatever it is belongs to this one, not to the one that was over before it.
                first.refuse(error)
            if not first.is_over:
                first.is_held = True
                break
            self._waiting.popleft()
        self.socket.set_aside(bool(self._waiting))

    async def _obey(self, large: Publication) -> None:
        assert large.obey is not None
        try:
            await large.obey(large)
        except Exception as error:
            large.refuse(error)
        self.follow()

    def _write(self, publication: Publication) -> None:
        message = publication.message
        request = check_append(PUBLISH.decode(message.text, message.note), len(message.text), None)
        publication.hand_over(request)
        if publication.is_held:
            self.follow()
