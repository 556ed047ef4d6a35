"""Parses HTTP/1.1 answers with httptools (llhttp), and remembers the heads that servers repeat."""

from typing import TypeAlias

import httptools

from topics.client.wire.requests import Response

_END = b"\r\n\r\n"
_MOST_HEADS = 256
# Larger answers are always parsed: the cost is small compared to their bodies.
_SMALL = 8192
# Lower statuses announce another answer.
_FINAL = 200
_FIRST_ROOM, _MOST_ROOM = 1 << 14, 1 << 18


class KnownReplyHead:
    """A parsed head."""

    __slots__ = ("headers", "is_last", "length", "status")

    def __init__(self, status: int, headers: dict[str, str], length: int) -> None:
        self.status = status
        self.headers = headers
        self.length = length
        # The server closes the connection after this answer. Such a head is not remembered.
        self.is_last = False


# Heads by their bytes, because a server repeats the same few heads. All connections of a client share them.
KnownHeads: TypeAlias = dict[bytes, KnownReplyHead]


def _keep(known_heads: KnownHeads, head: bytes, known: KnownReplyHead) -> None:
    if len(known_heads) >= _MOST_HEADS:
        known_heads.clear()
    known_heads[head] = known


class PipelinedAnswers:
    """The answers to pipelined requests, in the order of the requests."""

    __slots__ = ("_head", "_known", "_known_head", "_rest", "is_last")

    def __init__(self, known: KnownHeads) -> None:
        self._known = known
        # The last head, with its end.
        self._head = b""
        self._known_head: KnownReplyHead = None  # type: ignore[assignment]
        self._rest = b""
        # The server closes the connection after an answer that has come.
        self.is_last = False

    def received(self, data: bytes) -> list[Response]:
        """Return the answers that are complete now. `ValueError`: one is not HTTP or has no length."""
        if self._rest:
            data = self._rest + data
        answers: list[Response] = []
        at = 0
        while not self.is_last:
            # Most answers have the head of the one before.
            if not self._head or not data.startswith(self._head, at):
                end = data.find(_END, at)
                if end < 0:
                    break
                self._head = data[at : end + len(_END)]
                self._known_head = self._known.get(data[at:end]) or self._learnt(data[at:end])
            known, start = self._known_head, at + len(self._head)
            if start + known.length > len(data):
                break
            at = start + known.length
            if known.status >= _FINAL:
                answers.append(Response(known.status, known.headers, data[start:at]))
                self.is_last = known.is_last
        self._rest = data[at:]
        return answers

    @property
    def has_rest(self) -> bool:
        return bool(self._rest)

    def _learnt(self, head: bytes) -> KnownReplyHead:
        parser = AnswerParser(self._known)
        parser.feed(head + _END)
        response = parser.head()
        has_body = response.status >= _FINAL and response.status != 204
        try:
            length = int(response.headers["content-length"]) if has_body else 0
        except KeyError:
            raise ValueError("the answer does not tell how long it is") from None
        known = KnownReplyHead(response.status, response.headers, length)
        known.is_last = has_body and not parser.keeps
        if not known.is_last:
            _keep(self._known, head, known)
        return known


class AnswerParser:
    """The parser of one connection, for one answer at a time."""

    __slots__ = (
        "_body",
        "_headers",
        "_is_idle",
        "_keep",
        "_known",
        "_last",
        "_last_bytes",
        "_last_head",
        "_parser",
        "_status",
        "head_done",
        "is_complete",
        "room",
    )

    def __init__(self, known: KnownHeads) -> None:
        self._known = known
        # The last known head, its bytes, and the length of the whole answer.
        self._last: KnownReplyHead = None  # type: ignore[assignment]
        self._last_head = b""
        self._last_bytes = 0
        # Where bytes are received. Kept, because the system would take back and return the memory of a large
        # buffer for every page.
        self.room = memoryview(bytearray(_FIRST_ROOM))
        # Nothing of an answer has been parsed yet.
        self._is_idle = True
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._status = 0
        self._keep = True
        self.head_done = False
        self.is_complete = False

    # --- what httptools calls ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("the server sent more than it was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._keep = self._parser.should_keep_alive()
        self.head_done = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if 100 <= self._status < 200:
            return
        self.is_complete = True

    # --- what connections call --------------------------------------------------------------------------

    def answer(self, count: int) -> Response | None:
        """Return the answer in `room` if it is complete and its head is known, as for most answers.

        If not, the caller passes `count` to `received`.
        """
        if count > _SMALL or not self._is_idle or self.is_complete:
            return None
        data = self.room[:count].tobytes()
        # An answer as long as the one before often has the same head: its end is known.
        if count == self._last_bytes and data.startswith(self._last_head):
            known = self._last
            return Response(known.status, known.headers, data[len(self._last_head) :])
        return self._look_up(data)

    def _look_up(self, data: bytes) -> Response | None:
        """Return a complete answer with a known head."""
        end = data.find(_END)
        known = None if end < 0 else self._known.get(data[:end])
        if known is None or len(data) - end - 4 != known.length:
            return None
        self._last, self._last_head, self._last_bytes = known, data[: end + 4], len(data)
        return Response(known.status, known.headers, data[end + 4 :])

    def received(self, count: int) -> None:
        """Parse the first `count` bytes of `room`. Raises `ValueError` if they are not HTTP."""
        data = self.room[:count]
        if count == len(self.room) < _MOST_ROOM:
            self.room = memoryview(bytearray(2 * count))
        self.feed(bytes(data) if count <= _SMALL else data)

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes."""
        if self.is_complete:
            raise ValueError("the server sent more than it was asked for")
        is_first = self._is_idle
        if is_first and isinstance(data, bytes):
            answer = self._look_up(data)
            if answer is not None:
                self._status, self._headers, self._body = answer.status, answer.headers, [answer.body]
                self.head_done = self.is_complete = True
                return
        self._is_idle = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ValueError(f"the answer is not HTTP: {error}") from None
        if is_first and isinstance(data, bytes):
            self._remember(data)

    def _remember(self, data: bytes) -> None:
        """Remember the head of an answer that came as a whole."""
        end = data.find(_END)
        length = len(data) - end - 4
        if self.is_complete and self._keep and self._headers.get("content-length") == str(length):
            _keep(self._known, data[:end], KnownReplyHead(self._status, self._headers, length))

    def finish(self) -> bool:
        """The server has closed the connection. Whether that is the end of an answer without a length."""
        lengths = {"content-length", "transfer-encoding"}
        self.is_complete = self.is_complete or (self.head_done and not lengths & self._headers.keys())
        return self.is_complete

    @property
    def keeps(self) -> bool:
        """Whether the connection stays open after this answer."""
        return self._keep

    @property
    def is_ready(self) -> bool:
        """Whether the connection stays open, and no byte of another answer has come."""
        return self._keep and self._is_idle and not self.is_complete

    @property
    def body_bytes(self) -> int:
        return sum(map(len, self._body))

    def take_body(self) -> bytes:
        """Take the bytes of a stream that came since the last call."""
        pieces, self._body = self._body, []
        return b"".join(pieces)

    def head(self) -> Response:
        return Response(self._status, self._headers, b"")

    def take(self) -> Response:
        """Take the whole answer. The parser is ready for the next."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = Response(self._status, self._headers, body)
        self._headers, self._body = {}, []
        self.head_done = self.is_complete = False
        self._is_idle = True
        return response
