"""Publishing over a WebSocket: a write as HTTP takes it, through the same door, acknowledged when committed.

A client may publish without waiting for acknowledgements, and its records keep their order: behind a publish
that waits for its turn all later ones of the socket wait, and the socket is not read meanwhile.
"""

import logging
from collections import deque
from time import perf_counter

import msgspec

from topics.http.routes.appends import append_answer
from topics.http.routes.service import Service
from topics.http.wire.websocket import Socket
from topics.log import AppendOp, disables_backpressure, parse_append
from topics.values import ApiError, OutcomeUnknown

logger = logging.getLogger("topics.http")

_encode = msgspec.json.encode


class NotACommand(Exception):
    """The message is no object, names no known operation, or lacks what the operation cannot do without."""


# What a client did wrong, or may not do; anything else that is raised is our own mistake.
MISTAKES = (ApiError, NotACommand, msgspec.DecodeError, RecursionError)


def error_message(request_id: bytes, code: str, message: str) -> bytes:
    return b'{"op":"error","request_id":%b,"code":%b,"message":%b}' % (
        request_id,
        _encode(code),
        _encode(message),
    )


def refusal(request_id: bytes, error: Exception) -> bytes:
    """For what `MISTAKES` lists."""
    if isinstance(error, ApiError):
        return error_message(request_id, error.code, error.message)
    return error_message(request_id, "invalid_json", str(error))


class Publication:
    """One message that publishes."""

    __slots__ = ("_request_id", "_started", "_with_seqs", "is_held", "is_over", "message", "queue", "topic")

    def __init__(
        self, queue: "Publications", topic: str, message: bytes, request_id: bytes, *, with_seqs: bool
    ) -> None:
        self._request_id = request_id
        self._started = perf_counter()
        self._with_seqs = with_seqs
        self.queue = queue
        self.topic = topic
        self.message = message
        # It has to wait for its turn, and others behind it.
        self.is_held = False
        # Handed to the log, or refused.
        self.is_over = False

    @property
    def closed(self) -> bool:
        return self.queue.socket.closed

    def is_patient(self) -> bool:
        return disables_backpressure(self.message)

    def acknowledge(self, op: AppendOp) -> None:
        answer = append_answer(op, self._started, with_seqs=self._with_seqs)
        self.queue.socket.send(b'{"op":"ack","request_id":%b,%b' % (self._request_id, answer[1:]))

    def refuse(self, error: Exception) -> None:
        """What is no mistake of the client's is logged, and not told."""
        self.is_over = True
        if isinstance(error, OutcomeUnknown):
            self.queue.socket.abort()
            return
        if not isinstance(error, MISTAKES):
            logger.error("a publish failed", exc_info=error)
            error = ApiError("internal", "internal error")
        self.queue.socket.send(refusal(self._request_id, error))

    def fail_with(self, error: Exception) -> None:
        """Its turn came, and this was raised."""
        self.refuse(error)
        self.queue.follow()


class Publications:
    """The publishes of one socket, in the order in which they came."""

    def __init__(self, service: Service, socket: Socket) -> None:
        self._service = service
        self._waiting: deque[Publication] = deque()
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
            try:
                self._service.doors.append(
                    first, first.topic, len(first.message), self._write, Publication.is_patient
                )
            except Exception as error:
                # Whatever it is belongs to this one, not to the one that was over before it.
                first.refuse(error)
            if not first.is_over:
                first.is_held = True
                break
            self._waiting.popleft()
        self.socket.set_aside(bool(self._waiting))

    def _write(self, publication: Publication) -> None:
        request = parse_append(publication.message)
        publication.is_over = True
        key = self.socket.key
        self._service.append(publication.topic, request, key, publication.acknowledge, publication.refuse)
        if publication.is_held:
            self.follow()
