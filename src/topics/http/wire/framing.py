"""What has to be true of a request so that no other party can see it end elsewhere than we do.

The parser refuses most of what is wrong: two lengths, bare line feeds, blanks before a colon, control
characters. This is what it lets pass: a proxy in front of us may read such a request otherwise, and what one
takes for a body is the next request to the other.
"""

import re

_HTTP1 = b" HTTP/1."
_VERSION_BYTES = len(_HTTP1) + 1
_BLANK = 32
# As clients of old send them behind a body; the last one may be cut in two.
_EMPTY_LINES = re.compile(rb"(?:\r\n)+(?:[^\r\n]|\r?\Z)")
# A name or an address, perhaps in brackets, and a port. Two `Host` headers are joined by a comma and a blank.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]*\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


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
