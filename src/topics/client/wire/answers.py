"""Bytes of HTTP/1.1 answers in, whole answers out. Parsing is httptools' (llhttp); this keeps the pieces."""

from typing import TypeAlias

import httptools

from topics.client.wire.effects import Response

_END = b"\r\n\r\n"
_MOST_HEADS = 256
# Larger answers are parsed: beside their bodies, that costs nothing.
_SMALL = 8192
# Others say that there will be an answer.
_FINAL = 200
_FIRST_ROOM, _MOST_ROOM = 1 << 14, 1 << 18


class KnownHead:
    """What parsing a head came to."""

    __slots__ = ("headers", "is_last", "length", "status")

    def __init__(self, status: int, headers: dict[str, str], length: int) -> None:
        self.status = status
        self.headers = headers
        self.length = length
        # The connection ends behind it. No such head is remembered.
        self.is_last = False


# A server says the same heads again and again: the same bytes need not be parsed a second time. All
# connections of a client share what they have learnt.
KnownHeads: TypeAlias = dict[bytes, KnownHead]


def _keep(known_heads: KnownHeads, head: bytes, known: KnownHead) -> None:
    if len(known_heads) >= _MOST_HEADS:
        known_heads.clear()
    known_heads[head] = known


class AnswersInTurn:
    """To requests that were sent one behind the other, in their order."""

    __slots__ = ("_head", "_known", "_known_head", "_rest", "is_last")

    def __init__(self, known: KnownHeads) -> None:
        self._known = known
        # The head that came last, with what ends it.
        self._head = b""
        self._known_head: KnownHead = None  # type: ignore[assignment]
        self._rest = b""
        # The server ends the connection behind an answer that has come.
        self.is_last = False

    def received(self, data: bytes) -> list[Response]:
        """Those that are complete now. `ValueError`: this is no HTTP, or does not tell its length."""
        if self._rest:
            data = self._rest + data
        answers: list[Response] = []
        at = 0
        while not self.is_last:
            # Most are as long as the one before, and then their heads are the same.
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

    def _learnt(self, head: bytes) -> KnownHead:
        parser = AnswerParser(self._known)
        parser.feed(head + _END)
        response = parser.head()
        has_body = response.status >= _FINAL and response.status != 204
        try:
            length = int(response.headers["content-length"]) if has_body else 0
        except KeyError:
            raise ValueError("the answer does not tell how long it is") from None
        known = KnownHead(response.status, response.headers, length)
        known.is_last = has_body and not parser.keeps
        if not known.is_last:
            _keep(self._known, head, known)
        return known


class AnswerParser:
    """For one connection, one answer at a time."""

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
        # The known head that came last, as it came, and the length of the whole answer.
        self._last: KnownHead = None  # type: ignore[assignment]
        self._last_head = b""
        self._last_bytes = 0
        # Where bytes are received. It stays: a large one, made and freed for every page that is read, would
        # have the memory given back to the system and fetched again each time.
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
            raise ValueError("the server said more than it was asked")

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
        """What has come into `room`, if it is an answer with a known head, and all of it: most are.

        If not, so many bytes are still to be `received`.
        """
        if count > _SMALL or not self._is_idle or self.is_complete:
            return None
        data = self.room[:count].tobytes()
        # Often it is as long as the one before, and then its head is the same: no need to look for its end.
        if count == self._last_bytes and data.startswith(self._last_head):
            known = self._last
            return Response(known.status, known.headers, data[len(self._last_head) :])
        return self._look_up(data)

    def _look_up(self, data: bytes) -> Response | None:
        """What is a whole answer with a known head."""
        end = data.find(_END)
        known = None if end < 0 else self._known.get(data[:end])
        if known is None or len(data) - end - 4 != known.length:
            return None
        self._last, self._last_head, self._last_bytes = known, data[: end + 4], len(data)
        return Response(known.status, known.headers, data[end + 4 :])

    def received(self, count: int) -> None:
        """So many bytes have come into `room`. Raises `ValueError` on what is no HTTP."""
        data = self.room[:count]
        if count == len(self.room) < _MOST_ROOM:
            self.room = memoryview(bytearray(2 * count))
        self.feed(bytes(data) if count <= _SMALL else data)

    def feed(self, data: bytes | memoryview) -> None:
        """The same with bytes from elsewhere."""
        if self.is_complete:
            raise ValueError("the server said more than it was asked")
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
            raise ValueError(f"the answer is no HTTP: {error}") from None
        if is_first and isinstance(data, bytes):
            self._remember(data)

    def _remember(self, data: bytes) -> None:
        """A head that came with the whole of its answer, and with nothing else."""
        end = data.find(_END)
        length = len(data) - end - 4
        if self.is_complete and self._keep and self._headers.get("content-length") == str(length):
            _keep(self._known, data[:end], KnownHead(self._status, self._headers, length))

    def finish(self) -> bool:
        """The peer has closed: whether that is where the answer ends (neither length nor chunks)."""
        lengths = {"content-length", "transfer-encoding"}
        self.is_complete = self.is_complete or (self.head_done and not lengths & self._headers.keys())
        return self.is_complete

    @property
    def keeps(self) -> bool:
        """The connection stays open behind the answer whose head has come."""
        return self._keep

    @property
    def is_ready(self) -> bool:
        """For the next answer: the connection is kept, and nothing has come that was not asked for."""
        return self._keep and self._is_idle and not self.is_complete

    @property
    def body_bytes(self) -> int:
        return sum(map(len, self._body))

    def take_body(self) -> bytes:
        """What came of a stream since the last time."""
        pieces, self._body = self._body, []
        return b"".join(pieces)

    def head(self) -> Response:
        return Response(self._status, self._headers, b"")

    def take(self) -> Response:
        """The whole answer; the parser is ready for the next."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = Response(self._status, self._headers, body)
        self._headers, self._body = {}, []
        self.head_done = self.is_complete = False
        self._is_idle = True
        return response
