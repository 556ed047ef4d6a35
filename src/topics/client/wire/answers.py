"""Bytes of HTTP/1.1 answers in, whole answers out. Parsing is httptools' (llhttp); this keeps the pieces."""

import httptools

from topics.client.wire.effects import Response


class AnswerParser:
    """For one connection, one answer at a time."""

    __slots__ = ("_body", "_headers", "_keep", "_parser", "_status", "head_done", "is_complete")

    def __init__(self) -> None:
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

    def feed(self, data: bytes) -> None:
        """Raises `ValueError` on what is no HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ValueError(f"the answer is no HTTP: {error}") from None

    def finish(self) -> bool:
        """The peer has closed: whether that is where the answer ends (neither length nor chunks)."""
        lengths = {"content-length", "transfer-encoding"}
        self.is_complete = self.is_complete or (self.head_done and not lengths & self._headers.keys())
        return self.is_complete

    @property
    def keeps_alive(self) -> bool:
        return self._keep

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
        keep = self._keep
        self._headers, self._body = {}, []
        self.head_done = self.is_complete = False
        self._keep = keep
        return response
