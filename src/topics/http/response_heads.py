"""The bytes in front of a body. Built once where possible: they are part of every answer."""

from email.utils import formatdate
from http import HTTPStatus

JSON = b"application/json"
EVENTS = b"text/event-stream"
ARROW = b"application/vnd.apache.arrow.stream"

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CONTINUE = STATUS_LINES[100] + b"\r\n"
# Most answers are short; formatting their length anew each time would cost more than this table.
LENGTHS = tuple(b"%d\r\n\r\n" % length for length in range(4096))

HeaderList = list[tuple[bytes, bytes]]


class Heads:
    """Answer heads carrying the current date, which `refresh` renews about once a second."""

    def __init__(self) -> None:
        self._date = b""
        self.json_200 = b""
        self.refresh()

    def refresh(self) -> None:
        self._date = b"Date: " + formatdate(usegmt=True).encode() + b"\r\n"
        self.json_200 = self.before_length(200, JSON)

    def before_length(
        self,
        status: int,
        content_type: bytes,
        extra: HeaderList | None = None,
        connection: bytes | None = None,
    ) -> bytes:
        """Everything up to the number of bytes in the body, which the sender adds."""
        return self._lines(status, content_type, extra, connection) + b"Content-Length: "

    def unbounded(
        self, content_type: bytes, extra: HeaderList | None = None, *, chunked: bool, connection: bytes
    ) -> bytes:
        """The whole head of an answer whose length is not known yet."""
        lines = self._lines(200, content_type, extra, connection)
        return lines + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n")

    def fields(
        self, status: int, content_type: bytes, extra: HeaderList | None, length: int | None
    ) -> HeaderList:
        """Return the head of an answer as fields of HTTP/2."""
        fields = [(b":status", b"%d" % status), (b"content-type", content_type), (b"date", self._date[6:-2])]
        if length is not None:
            fields.append((b"content-length", b"%d" % length))
        fields += [(name.lower(), value) for name, value in extra or ()]
        return fields

    def _lines(
        self, status: int, content_type: bytes, extra: HeaderList | None, connection: bytes | None
    ) -> bytes:
        lines = [STATUS_LINES[status], b"Content-Type: ", content_type, b"\r\n", self._date]
        for name, value in extra or ():
            lines += (name, b": ", value, b"\r\n")
        if connection is not None:
            lines += (b"Connection: ", connection, b"\r\n")
        return b"".join(lines)
