"""From the fields of a HEADERS frame to a request.

`h2` has checked most of it: pseudo-headers, small letters, no header of one connection only, a body as long
as announced. What is left is what `http1` and `framing` refuse.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from topics.http.wire.framing import host_of
from topics.http.wire.request import PROTOCOL

_TARGET = re.compile(rb"/[!-~]*|\*")
_METHOD = re.compile(rb"[A-Z]+")
# What RFC 9113 counts for a field besides its bytes.
_FIELD_BYTES = 32


class RequestHead(NamedTuple):
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    # What the client wants to speak on this stream, if it is not HTTP.
    protocol: bytes
    # How much memory it may take.
    size: int
    # Otherwise it is answered with 400.
    is_sound: bool


def read_head(fields: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    size = 0
    for name, value in fields:
        size += len(name) + len(value) + _FIELD_BYTES
        known = pseudo if name[:1] == b":" else headers
        known[name] = known[name] + b", " + value if name in known else value
    authority = pseudo.get(b":authority")
    if authority is not None:
        headers[b"host"] = authority
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    host = host_of(target, headers)
    length = headers.get(b"content-length")
    is_sound = (
        _METHOD.fullmatch(method) is not None
        and _TARGET.fullmatch(target) is not None
        and bool(host)
        and (length is None or length.isdigit())
    )
    if host is not None:
        headers[b"host"] = host
    protocol = pseudo.get(PROTOCOL, b"")
    if protocol:
        headers[PROTOCOL] = protocol
    return RequestHead(bytes(method), bytes(target), headers, bytes(protocol), size, is_sound)
