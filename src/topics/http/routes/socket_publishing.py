"""Publishing over a WebSocket: an append as HTTP takes it, acknowledged when it is committed.

A client may publish without waiting for acknowledgements, and its records keep their order: while a publish
waits for its admission, all later ones of the socket wait, and the socket is not read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from topics import codec
from topics.core import ApiError, OutcomeUnknown, TopicConfig, invalid
from topics.flow.large_appends import append_large
from topics.http.admission.auth import ADMIN
from topics.http.open_streams import error_message
from topics.http.request import StrictInput
from topics.http.routes.appends import append_answer
from topics.http.routes.service import Service, check_dead_letter
from topics.log import Append, AppendOp, Topic

if TYPE_CHECKING:
    from topics.http.websocket import Socket

logger = logging.getLogger("topics.http")


class NotACommand(Exception):
    """The message is no object, names no known operation, or lacks what the operation cannot do without."""


# Mistakes of a client. Any other exception is a defect of the server.
MISTAKES = (ApiError, NotACommand, msgspec.DecodeError, RecursionError)


Obey = Callable[["Publication"], Coroutine[Any, Any, None]]


class Message(StrictInput):
    """A message of a client over a WebSocket."""

    __slots__ = ("_ignores_unknown", "request_id", "socket", "text")

    def __init__(self, socket: "Socket", text: bytes, *, ignores_unknown: bool) -> None:
        self._ignores_unknown = ignores_unknown
        self.socket = socket
        self.text = text
        # As the text it came in, to be sent back the same.
        self.request_id = b"null"
        self.unknown_fields = None

    @property
    def ignores_unknown(self) -> bool:
        return self._ignores_unknown

    def refuse(self, error: Exception) -> None:
        """For what `MISTAKES` lists."""
        mistake = error if isinstance(error, ApiError) else invalid(str(error))
        if self.unknown_fields is not None:
            self.unknown_fields.mention_in(mistake)
        code = mistake.code if mistake is error else "invalid_json"
        self.socket.send(error_message(code, mistake.message, mistake.detail, self.request_id))


class Publication(Append):
    """A message that publishes, as an append request."""

    def __init__(
        self, queue: "Publications", topic: str, message: Message, obey: "Obey | None" = None
    ) -> None:
        """`obey` does what a large message says, whatever that is, in its turn."""
        super().__init__(topic)
        self.queue = queue
        self.message = message
        self.obey = obey
        self._started = perf_counter()
        # The publication waits for its turn, and others wait behind it.
        self.is_held = False
        # Handed to the log, or refused.
        self.is_over = False

    @property
    def closed(self) -> bool:
        return self.queue.socket.closed

    def is_patient(self) -> bool:
        write = codec.decode([self.message.text], publish=True)[0]
        return write is not None and write.patient

    def append(self) -> None:
        """Hand the records to the log, which answers."""
        self._decode()
        self.is_over = True
        self.queue.service.engine.append(self)

    async def append_large(self) -> None:
        """Append the records of a large message."""
        service = self.queue.service
        write = await asyncio.to_thread(self._decode)
        if not self.closed:
            self.is_over = True
            await append_large(service.engine, service.admission, self, [write], is_patient=write.patient)

    def _decode(self) -> codec.Write:
        self.write = write = codec.decode([self.message.text], publish=True)[0] or self.explain()
        return write

    def fail_with(self, error: Exception) -> None:
        """Its turn came, and this was raised."""
        self.refuse(error)
        self.queue.follow()

    # --- as an append request ---------------------------------------------------------------------------

    def committed(
        self, topic: Topic, first_seq: int, count: int, with_seqs: bool, op: AppendOp | None
    ) -> None:
        created = op is not None and op.created_by is self
        answer = append_answer(
            topic, first_seq, count, self._started, op, with_seqs=with_seqs, created=created
        )
        self.queue.socket.send(b'{"op":"ack","request_id":%b,%b' % (self.message.request_id, answer[1:]))

    def fail(self, error: ApiError) -> None:
        self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Report a mistake to the client. Any other error is logged, and the client gets no details."""
        self.is_over = True
        if isinstance(error, OutcomeUnknown):
            self.queue.socket.abort()
            return
        if not isinstance(error, MISTAKES):
            logger.error("a publish failed", exc_info=error)
            error = ApiError("internal", "internal error")
        self.message.refuse(error)

    def explain(self) -> codec.Write:
        write = codec.explain(self.message.text, self.message.note, publish=True)
        self.unknown_fields = self.message.unknown_fields
        return write

    def check_config(self, config: TopicConfig) -> None:
        check_dead_letter(self.queue.socket.key, config)

    @property
    def may_configure(self) -> bool:
        key = self.queue.socket.key
        return key is None or key.can(ADMIN)


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
                self.service.admission.enter(
                    first, first.name, len(first.message.text), self._append, Publication.is_patient
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

    def _append(self, publication: Publication) -> None:
        publication.append()
        if publication.is_held:
            self.follow()
