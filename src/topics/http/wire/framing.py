"""What has to be true of a request so that no other party can see it end elsewhere than we do.

The parser refuses most of what is wrong: two lengths, bare line feeds, blanks before a colon, control
characters. This is what it lets pass: a proxy in front of us may read such a request otherwise, and what one
takes for a body is the next request to the other.
"""

import re

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
