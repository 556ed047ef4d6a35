"""From the bytes of an HTTP/1.1 connection to heads, pieces of bodies and the ends of requests.

`httptools` parses. Input that httptools accepts and another party may read in another way is refused here.
"""

import logging
import re
from typing import NamedTuple

import httptools

from topics.core import ApiError, invalid
from topics.http.context import Limits
from topics.http.tls import PREFACE

_HTTP1 = b" HTTP/1."
_VERSION_BYTES = len(_HTTP1) + 1
_BLANK = 32
END_OF_HEAD = b"\r\n\r\n"
# As clients of old send them behind a body; the last one may be cut in two.
_EMPTY_LINES = re.compile(rb"(?:\r\n)+(?:[^\r\n]|\r?\Z)")
# A name or an address, perhaps in brackets, and a port. Two `Host` headers are joined by a comma and a blank.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]*\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
# Enough to see the size of a chunk, or that a line is not empty.
_MOST_OF_A_LINE = 32


def begins_well(data: bytes) -> bool:
    """Whether a request may begin like this, as far as it has come: with its first line, or an empty one."""
    end = data.find(b"\r\n")
    if end > 0:
        # Whatever is no line at all is seen by the byte it begins with.
        return data[end - _VERSION_BYTES : end - 1] == _HTTP1 and data[0] > _BLANK
    if end == 0:
        return begins_well(data.lstrip(b"\r\n")) if _EMPTY_LINES.match(data) else False
    # Not complete yet, perhaps not even an empty line is.
    return b"\n" not in data and (data[:1] != b"\r" or data == b"\r")


def has_two_blanks(data: bytes) -> bool:
    """Whether the first line of a request has three parts, with one blank between each and the next.

    The parser skips more of them, and others take the second for a part of the target.
    """
    start = 0
    while data[start : start + 2] == b"\r\n":
        start += 2
    return data.count(b" ", start, data.find(b"\r\n", start)) == 2


def is_one_request(data: bytes, most_head_bytes: int) -> bool:
    """Whether this is one whole request, or the head of one, and nothing else: known if it is as usual."""
    end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
    if not len(END_OF_HEAD) <= end <= most_head_bytes:
        return False
    body_bytes = len(data) - end
    # No request has two of these lines.
    return not body_bytes or data.find(b"\r\nContent-Length: %d\r\n" % body_bytes, 0, end) > 0


def end_of_head(data: bytes, at: int, tail: bytes) -> int:
    """Behind its empty line, or at the end of the data; `tail` are the last bytes of it that came before."""
    start = at
    if tail:
        end = (tail + data[at : at + len(END_OF_HEAD) - 1]).find(END_OF_HEAD)
        if end >= 0:
            return at + end + len(END_OF_HEAD) - len(tail)
    elif data[at] <= _BLANK:
        # Empty lines before a head do not end it.
        start = len(data) - len(data[at:].lstrip(b"\r\n"))
    end = data.find(END_OF_HEAD, start)
    return len(data) if end < 0 else end + len(END_OF_HEAD)


def host_of(target: bytes, headers: dict[bytes, bytes]) -> bytes | None:
    """The host that is asked. None when there is none, more than one, or one that cannot be a host.

    In a target that is a whole URL, as a proxy gets it, that one counts and not the header.
    """
    host = headers.get(b"host")
    if host is None:
        return None
    host = host.strip(b" \t")
    if not _HOST.fullmatch(host):
        return None
    if b"://" in target and not target.startswith(b"/"):
        host = re.split(rb"[/?#]", target.partition(b"://")[2], maxsplit=1)[0]
        return host if host and _HOST.fullmatch(host) else None
    return host


def is_chunked(headers: dict[bytes, bytes]) -> bool:
    """Whether the body comes in chunks, and in no other wrapping besides."""
    return headers[b"transfer-encoding"].rstrip(b" ").lower() == b"chunked"


class Chunks:
    """Where a body that comes in chunks ends. Whether they are sound is for the parser to say."""

    __slots__ = ("_in_trailers", "_line", "_skip")

    def __init__(self) -> None:
        # Bytes until the next line: those of a chunk, and its line's end.
        self._skip = 0
        # What has come of a line that is not complete.
        self._line = b""
        self._in_trailers = False

    def end_in(self, data: bytes) -> int:
        """In the bytes that come next; all of them, if it does not end there, or cannot be understood."""
        at = 0
        while (at := at + self._skip) < len(data):
            self._skip = 0
            end = data.find(b"\n", at) + 1
            line = self._line + data[at : end or len(data)]
            if not end:
                self._line = line[:_MOST_OF_A_LINE]
                return len(data)
            self._line, at = b"", end
            if self._in_trailers:
                if line == b"\r\n":
                    return end
                continue
            size = _CHUNK_SIZE.match(line)
            if size is None:
                return len(data)
            chunk_bytes = int(size[0], 16)
            self._in_trailers = not chunk_bytes
            self._skip = chunk_bytes + len(b"\r\n") if chunk_bytes else 0
        self._skip = at - len(data)
        return len(data)


logger = logging.getLogger("topics.http")

# The parser gets at most this much of a head, of chunks or of trailers before the size is checked.
_SLICE_BYTES = 16 * 1024
_BLANK, _CR = 32, 13


class ParsedHead(NamedTuple):
    """The fields are in the order in which an exchange takes them."""

    method: bytes
    target: bytes
    # Names in lower case; repeated headers joined with commas.
    headers: dict[bytes, bytes]
    # The client wants the connection to end with the reply.
    closes: bool
    http10: bool
    # What follows may belong to another protocol.
    may_upgrade: bool


class RequestParser:
    """`feed` parses a part of the input. Its results are in these fields until it is called again:

    head         of a request, if it became complete
    body         the bytes of a body
    is_complete  a request has ended
    failure      why the input is not a request, and the status for it; nothing may be fed after that
    is_between   the next byte begins a request
    """

    __slots__ = (
        "_body_left",
        "_chunks",
        "_half_blank",
        "_head_bytes",
        "_headers",
        "_host",
        "_http",
        "_is_first",
        "_limits",
        "_tail",
        "_target",
        "_without_upgrade",
        "body",
        "failure",
        "head",
        "is_between",
        "is_complete",
        "is_inside",
        "opening",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._http: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        # No head has been complete yet.
        self._is_first = True
        # Some of a request has come, but not its end.
        self.is_inside = False
        self.is_between = True
        self._target = b""
        # None once a head is complete: header lines that follow then are trailers, which nobody wants.
        self._headers: dict[bytes, bytes] | None = {}
        # How much has come that is not body: target, headers, the framing of chunks, trailers.
        self._head_bytes = 0
        # The piece with which a request begins, or the pieces that have its first line.
        self.opening = b""
        # The last bytes of a head that is not complete: its end may be cut in two.
        self._tail = b""
        # The last piece may have ended with the first half of an empty line.
        self._half_blank = False
        # The host of the last request; at first one that no request can have.
        self._host: bytes | None = b"\r\n"
        # How the body that is arriving ends: after so many bytes, or with its last chunk.
        self._body_left = 0
        self._chunks: Chunks | None = None
        # The head of a request with a body that asks for an upgrade, without that wish.
        self._without_upgrade: bytes | None = None
        self.head: ParsedHead | None = None
        self.body = b""
        self.is_complete = False
        self.failure: tuple[ApiError, int] | None = None

    def close(self) -> None:
        """Let the parser and its callbacks go: they refer to each other."""
        self._http = None

    def skip_body(self) -> None:
        """Go on after a body that was received past the parser."""
        self._http = httptools.HttpRequestParser(self)
        self.opening = b""
        self._headers = {}
        self.is_inside = False
        self.is_between = True

    def feed(self, data: bytes, at: int) -> int:
        """Parse a part of the data that begins there. Return where the part ends."""
        self.head = None
        self.body = b""
        self.is_complete = False
        stop = self._end_of_part(data, at)
        stop = at + self._feed(data[at:stop])
        self.is_between = not (self.is_inside or self._half_blank)
        return stop

    def _end_of_part(self, data: bytes, at: int) -> int:
        """The part is of one request only: httptools does not tell where in its input a request begins."""
        if self._headers is None:
            if self._chunks is not None:
                return at + self._chunks.end_in(data[at : at + _SLICE_BYTES])
            return min(at + self._body_left, len(data))
        if self._is_first and (self.opening + data[at : at + len(PREFACE)]).startswith(PREFACE):
            return len(data)
        if not (at or self.is_inside) and is_one_request(data, _SLICE_BYTES):
            return len(data)
        return min(end_of_head(data, at, self._tail), at + _SLICE_BYTES)

    def _feed(self, data: bytes) -> int:
        """Parse all of the data. Return how much of it was parsed: after an upgrade the rest is left."""
        assert self._http is not None
        was_inside = self.is_inside
        if not was_inside:
            self.opening = data
            if (data[0] <= _BLANK or self._half_blank) and not self._goes_on_well(data):
                self._fail_as_malformed()
                return len(data)
        elif self._headers is not None and b"\r\n" not in self.opening.lstrip(b"\r\n"):
            # The first line is not complete; there may be empty lines before it.
            self.opening += data
        parsed = len(data)
        try:
            self._http.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            parsed = int(upgrade.args[0])
            if self._without_upgrade is not None:
                self._parse_without_upgrade(self._without_upgrade)
                return parsed
        except httptools.HttpParserCallbackError:
            logger.exception("a parser callback failed")
            self._fail(ApiError("internal", "internal error"), 500)
        except httptools.HttpParserInvalidMethodError:
            parsed = self._parse_unknown_method(data)
        except httptools.HttpParserError:
            self._fail_as_malformed()
        if self.failure is None:
            self._check_part(data, was_inside)
        return parsed

    def _check_part(self, data: bytes, was_inside: bool) -> None:
        """What httptools lets pass, after it has parsed this part."""
        if self.is_inside and self._headers is not None:
            self._tail = (self._tail + data)[1 - len(END_OF_HEAD) :]
            if not begins_well(self.opening):
                # The head is not complete, and need not be if its version has none.
                self._fail_as_malformed()
                return
        else:
            self._tail = b""
        if self.is_inside:
            self._check_overhead(len(data))
            return
        self.opening = b""
        # A body may end like this as well.
        self._half_blank = data[-1] == _CR and not was_inside and not data.strip(b"\r\n")

    def _goes_on_well(self, data: bytes) -> bool:
        """Between two requests there may be empty lines, and one of them may be cut in two."""
        was_half, self._half_blank = self._half_blank, False
        if was_half and data[:1] == b"\n":
            self.opening = data[1:]
        elif was_half:
            return False  # without its other half
        return begins_well(self.opening)

    def _check_overhead(self, fed: int) -> None:
        """Bound what is not body."""
        if self.head is not None or self.body:
            self._head_bytes = 0
            return
        self._head_bytes += fed
        if len(self._target) > self._limits.target_bytes:
            self._fail(target_too_long(), 414)
        elif self._head_bytes > self._limits.head_bytes:
            self._fail(invalid("the headers are too long"), 431)

    def _fail(self, error: ApiError, status: int) -> None:
        if self.failure is None:
            self.failure = (error, status)

    def _fail_as_malformed(self) -> None:
        self._fail(invalid("the request is not valid HTTP"), 400)

    def _parse_unknown_method(self, data: bytes) -> int:
        """httptools knows a fixed list of methods; for others, let routing say that they are not allowed.

        Return how much of the data was parsed.
        """
        line, newline, rest = self.opening.partition(b"\r\n")
        method, _, after = line.partition(b" ")
        if not (method.isalpha() and method.isupper()):
            self._fail_as_malformed()
        elif newline:
            self._http = httptools.HttpRequestParser(self)
            self.is_inside = False
            # httptools knows this method and no route has it, so this happens once only.
            again = b"PATCH " + after + newline + rest
            return len(data) - (len(again) - self._feed(again))
        # Otherwise the line goes on in another piece, which httptools refuses again.
        return len(data)

    def _parse_without_upgrade(self, head: bytes) -> None:
        """httptools skips the body of a request that asks for an upgrade; here it belongs to the request."""
        self._without_upgrade = None
        self._http = httptools.HttpRequestParser(self)
        self._feed(head)

    # Callbacks of httptools

    def on_message_begin(self) -> None:
        self.is_inside = True

    def on_url(self, piece: bytes) -> None:
        self._target = self._target + piece if self._target else piece

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        if headers is None:
            return
        name = name.lower()
        if name in headers:
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        http, headers, target = self._http, self._headers, self._target
        if http is None or headers is None:
            return
        self._target = b""
        self._headers = None
        self._head_bytes = 0
        self._is_first = False
        if not has_two_blanks(self.opening):
            self._fail_as_malformed()
            return
        version, closes = "1.1", False
        # Otherwise it is 1.1: with any other version, a connection that goes on has to be asked for.
        if not http.should_keep_alive() or b"connection" in headers:
            version = http.get_http_version()
            closes = not http.should_keep_alive()
        is_unusual = headers.get(b"host") != self._host or target[:1] != b"/" or version != "1.1"
        if (is_unusual or b"transfer-encoding" in headers) and not self._is_sound(target, headers, version):
            self._fail_as_malformed()
            return
        may_upgrade = b"upgrade" in headers and http.should_upgrade()
        head = ParsedHead(http.get_method(), target, headers, closes, version == "1.0", may_upgrade)
        if may_upgrade and _has_body(headers):
            self._without_upgrade = _rebuild_without_upgrade(head)
            return
        self._chunks = Chunks() if b"transfer-encoding" in headers else None
        self._body_left = int(headers.get(b"content-length", b"0"))
        self.head = head

    def _is_sound(self, target: bytes, headers: dict[bytes, bytes], version: str) -> bool:
        """Whether version, host and framing of a request are what they should be."""
        if version != "1.1" and not begins_well(self.opening):
            return False
        if b"transfer-encoding" in headers and (version != "1.1" or not is_chunked(headers)):
            return False
        if version == "1.0" and b"host" not in headers:
            return True
        host = host_of(target, headers)
        if host is None:
            return False
        headers[b"host"] = self._host = host
        return True

    def on_body(self, piece: bytes) -> None:
        self._body_left -= len(piece)
        self.body = self.body + piece if self.body else piece

    def on_message_complete(self) -> None:
        self.is_inside = False
        self._headers = {}
        # The message of a request that is parsed again without its upgrade ends early.
        self.is_complete = self._without_upgrade is None


def target_too_long() -> ApiError:
    return invalid("the request target is too long")


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _rebuild_without_upgrade(head: ParsedHead) -> bytes:
    lines = [head.method + b" " + head.target + b" HTTP/1.1"]
    dropped = (b"upgrade", b"connection", b"http2-settings")
    lines += [name + b": " + value for name, value in head.headers.items() if name not in dropped]
    return b"\r\n".join(lines) + b"\r\n\r\n"
