"""Parses HTTP/1.1 answers with httptools (llhttp), and remembers the heads that servers repeat."""

from collections import deque
from typing import TypeAlias

import httptools

from topics.client.wire.requests import Response

_END = b"\r\n\r\n"
_MOST_HEADS = 256
# Larger pieces are always parsed: the cost is small compared to the bodies in them.
_SMALL = 8192
# Lower statuses announce another answer.
_FINAL = 200
_FIRST_ROOM, _MOST_ROOM = 1 << 14, 1 << 18


class KnownReplyHead:
    """A parsed head, and the length of the body that follows it."""

    __slots__ = ("headers", "length", "status")

    def __init__(self, status: int, headers: dict[str, str], length: int) -> None:
        self.status = status
        self.headers = headers
        self.length = length


# Heads by their bytes, because a server repeats the same few heads. All connections of a client share them.
KnownHeads: TypeAlias = dict[bytes, KnownReplyHead]


class AnswerParser:
    """The parser of one connection: answers in the order of their requests, or the stream of one request."""

    __slots__ = (
        "_body",
        "_headers",
        "_keeps",
        "_known",
        "_last",
        "_last_head",
        "_parser",
        "answers",
        "head_done",
        "is_idle",
        "room",
    )

    def __init__(self, known: KnownHeads) -> None:
        self._known = known
        # The last known head, and its bytes: most answers have the head of the one before.
        self._last: KnownReplyHead = None  # type: ignore[assignment]
        self._last_head = b""
        # Where bytes are received. Kept, because the system would take back and return the memory of a large
        # buffer for every page.
        self.room = memoryview(bytearray(_FIRST_ROOM))
        # Whole answers that nobody has taken yet.
        self.answers: deque[Response] = deque()
        # Nothing of an answer has come that is not in `answers`.
        self.is_idle = True
        # The head of the answer under way is parsed.
        self.head_done = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._keeps = True

    # --- what httptools calls ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.is_idle = False
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._keeps = self._parser.should_keep_alive()
        self.head_done = self._parser.get_status_code() >= _FINAL

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.is_idle = True
        if self.head_done:
            self.head_done = False
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body = []
            self.answers.append(Response(self._parser.get_status_code(), self._headers, body))

    # --- what connections call --------------------------------------------------------------------------

    def received(self, count: int) -> None:
        """Parse the first `count` bytes of `room`. Raises `ValueError` if they are not HTTP."""
        if count <= _SMALL:
            self.feed(self.room[:count].tobytes())
            return
        data = self.room[:count]
        if count == len(self.room) < _MOST_ROOM:
            self.room = memoryview(bytearray(2 * count))
        self._parse(data)

    def feed(self, data: bytes) -> None:
        """Parse a small piece: whole answers with known heads without httptools, and the rest with it."""
        if not self.is_idle:
            self._parse(data)
            return
        at = self._look_up(data)
        if at < len(data):
            rest = data[at:] if at else data
            before = len(self.answers)
            self._parse(rest)
            if len(self.answers) == before + 1:
                self._remember(rest, self.answers[-1])

    def _look_up(self, data: bytes) -> int:
        """Take the answers at the beginning of `data` that have known heads. Returns where they end."""
        at = 0
        while at < len(data):
            if not self._last_head or not data.startswith(self._last_head, at):
                end = data.find(_END, at)
                found = None if end < 0 else self._known.get(data[at:end])
                if found is None:
                    break
                self._last, self._last_head = found, data[at : end + len(_END)]
            known = self._last
            start = at + len(self._last_head)
            if start + known.length > len(data):
                break
            at = start + known.length
            self.answers.append(Response(known.status, known.headers, data[start:at]))
        return at

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ValueError(f"the answer is not HTTP: {error}") from None

    def _remember(self, data: bytes, answer: Response) -> None:
        """Remember the head of an answer that came as a whole."""
        end = data.find(_END)
        length = len(data) - end - len(_END)
        if self._keeps and answer.headers.get("content-length") == str(length):
            if len(self._known) >= _MOST_HEADS:
                self._known.clear()
            self._known[data[:end]] = KnownReplyHead(answer.status, answer.headers, length)

    def finish(self) -> bool:
        """The server has closed the connection. Whether that is the end of an answer without a length."""
        self._keeps = False
        if self.head_done and not {"content-length", "transfer-encoding"} & self._headers.keys():
            self.on_message_complete()
        return bool(self.answers)

    @property
    def keeps(self) -> bool:
        """Whether the connection stays open after the last answer."""
        return self._keeps

    @property
    def is_ready(self) -> bool:
        """Whether the connection stays open, and no byte has come of what was not asked for."""
        return self._keeps and self.is_idle and not self.answers

    def take(self) -> Response:
        """Take the answer to the only request under way."""
        if len(self.answers) != 1 or not self.is_idle:
            raise ValueError("the server sent more than it was asked for")
        return self.answers.popleft()

    # --- a stream ---------------------------------------------------------------------------------------

    def head(self) -> Response:
        """The head of the answer under way, or of one that has come as a whole."""
        if self.answers:
            return self.answers[0]
        return Response(self._parser.get_status_code(), self._headers, b"")

    @property
    def has_head(self) -> bool:
        return self.head_done or bool(self.answers)

    @property
    def body_bytes(self) -> int:
        return sum(map(len, self._body))

    def take_body(self) -> bytes:
        """Take the bytes of a stream that came since the last call."""
        if self.answers:
            return self.answers.popleft().body
        pieces, self._body = self._body, []
        return b"".join(pieces)
