"""Fields of requests, each checked in the same way wherever it appears, and fields of topics in answers.

Lists that may be long are read a page at a time, in the order of names.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from topics.core import (
    FIELDS,
    LEASE_MS_RANGE,
    MAX_CLAIM,
    MAX_NODES,
    MAX_SEQ,
    NODE_AT,
    U64_MAX,
    ApiError,
    invalid,
)
from topics.http.exchange import Exchange
from topics.log import Topic

Body = TypeVar("Body")


def wants_only_new(exchange: Exchange) -> bool:
    """Return whether the request may only create."""
    return exchange.headers.get(b"if-none-match", b"").strip() == b"*"


def unsigned(value: int, name: str) -> int:
    if not 0 <= value <= U64_MAX:
        raise invalid(f"{name} must be an unsigned 64-bit integer")
    return value


def unsigned_or_none(value: int | UnsetType | None, name: str) -> int | None:
    return None if value is None or value is UNSET else unsigned(value, name)


def clamped(value: int, default: int, maximum: int, name: str) -> int:
    """0 means the default, anything above the maximum means the maximum, however large."""
    if value < 0:
        raise invalid(f"{name} must not be negative")
    return min(value, maximum) if value else default


def lease_length(lease_ms: int) -> int:
    if lease_ms < 0:
        raise invalid("lease_ms must not be negative")
    low, high = LEASE_MS_RANGE
    return min(max(lease_ms, low), high)


def check_node(node: str) -> None:
    """The name under which a worker holds its jobs."""
    if not 1 <= len(node.encode("utf-8", "replace")) <= FIELDS[NODE_AT].max_bytes:
        raise invalid(f"node must be 1 to {FIELDS[NODE_AT].max_bytes} bytes")


def node_set(node: str | list[str] | None) -> frozenset[str] | None:
    """The nodes whose records are wanted; None for all."""
    if node is None:
        return None
    if isinstance(node, str):
        return frozenset((node,))
    if len(node) > MAX_NODES:
        raise invalid(f"node names at most {MAX_NODES} nodes", {"max": MAX_NODES, "nodes": len(node)})
    return frozenset(node)


def check_seqs(seqs: list[int], code: str = "invalid_request") -> None:
    """`code`: what too many of them are called."""
    if len(seqs) > MAX_CLAIM:
        detail = {"max": MAX_CLAIM, "seqs": len(seqs)}
        raise ApiError(code, f"at most {MAX_CLAIM} seqs fit in one request", detail)
    if seqs and not 0 <= min(seqs) <= max(seqs) <= U64_MAX:
        raise invalid("seqs must be unsigned 64-bit integers")


# Attributes of a topic by the names that they have in answers, where the names differ.
_FIELDS = {
    "topic": "name",
    "type": "config.type",
    "durability": "config.durability",
    "durable": "config.durable",
    "ttl_ms": "config.ttl_ms",
    "head_seq": "head",
    "earliest_seq": "floor",
    "count": "live_count",
    "bytes": "live_bytes",
    "epoch": "id",
}


def shown(topic: Topic, *names: str) -> dict[str, Any]:
    """Return fields of a topic under the names that they have in answers."""
    return {name: attrgetter(_FIELDS.get(name, name))(topic) for name in names}


DEFAULT_PAGE, MAX_PAGE = 100, 1000
# Query parameters of every list.
PAGING = ("prefix", "page_size", "cursor")
_NUMBER = re.compile(r"\+?[0-9]+")


class Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


def page(
    exchange: Exchange,
    title: str,
    items: Iterator[Item],
    entry: Callable[[Item], dict[str, Any]],
    most: int = MAX_PAGE,
) -> dict[str, Any]:
    """Return the next items, as many as were asked for. `entry` is called for these only."""
    listed = list(islice(items, min(page_size(exchange), most)))
    body: dict[str, Any] = {title: [entry(item) for item in listed]}
    if next(items, None) is not None:
        body["next_cursor"] = cursor_after(listed[-1].name)
    return body


def start_of_page(exchange: Exchange) -> str:
    """The name after which the page starts; empty for the first page."""
    text = exchange.query("cursor")
    if not text:
        return ""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        marker, _, name = raw.decode().partition(":")
    except (binascii.Error, ValueError):
        raise invalid("cursor is not one this server gave out") from None
    if marker != "after" or not name:
        raise invalid("cursor is not one this server gave out")
    return name


def seq_at_start_of_page(exchange: Exchange) -> int:
    """Return the seq after which the page starts, in a list in the order of seqs; 0 for the first page."""
    text = start_of_page(exchange)
    if text and not (text.isascii() and text.isdigit() and int(text[:20]) <= MAX_SEQ):
        raise invalid("cursor is not one this server gave out")
    return int(text or 0)


def cursor_after(name: str) -> str:
    return base64.urlsafe_b64encode(b"after:" + name.encode()).decode().rstrip("=")


def page_size(exchange: Exchange) -> int:
    text = exchange.query("page_size") or ""
    # int() alone would take underscores, spaces and other scripts' digits for numbers too.
    if not _NUMBER.fullmatch(text):
        return DEFAULT_PAGE
    return min(max(int(text[:20]), 1), MAX_PAGE)
