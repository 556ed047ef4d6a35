"""Names for single requests, so that a client's log and ours can be laid side by side.

A client may send `X-Request-Id`; it comes back with the answer. Without one, a request gets an id only when
there is something to tell about it.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from topics.http.wire.answer_heads import HeaderList

if TYPE_CHECKING:
    from topics.http.wire.exchange import Exchange

HEADER = b"x-request-id"
# What ends up in logs is short and cannot break a line; anything else is as good as no id.
_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_NO_TRACE = "0" * 32


def given_id(exchange: Exchange) -> bytes | None:
    """The id the client sent, or the one that was made up since."""
    sent = exchange.headers.get(HEADER)
    return sent if sent is not None and _ID.fullmatch(sent) else None


def ensure_id(exchange: Exchange) -> str:
    """The id of a request that is being talked about; the answer will carry it."""
    known = given_id(exchange)
    if known is None:
        known = secrets.token_hex(8).encode()
        # A copy: requests that look alike share one dictionary.
        exchange.headers = {**exchange.headers, HEADER: known}
        exchange.plain = False
    return known.decode()


def with_id(exchange: Exchange, headers: HeaderList | None) -> HeaderList | None:
    """The headers of an answer, and the request's id if it has one."""
    known = given_id(exchange)
    return headers if known is None else [*(headers or ()), (b"X-Request-Id", known)]


def trace_of(exchange: Exchange) -> str | None:
    """The caller's trace, for finding a line of the log from a trace and back."""
    match = _TRACE.fullmatch(exchange.headers.get(b"traceparent", b""))
    trace = None if match is None else match[1].decode()
    return None if trace == _NO_TRACE else trace
