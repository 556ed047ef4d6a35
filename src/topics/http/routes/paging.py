"""Lists that may be long: a page at a time, in the order of names."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

from topics.http.wire.exchange import Exchange
from topics.values import MAX_SEQ, invalid

DEFAULT_PAGE, MAX_PAGE = 100, 1000
# What every list may be asked.
PAGING = ("prefix", "page_size", "cursor")
_NUMBER = re.compile(r"\+?[0-9]+")


class Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


def page(
    exchange: Exchange, title: str, items: Iterator[Item], entry: Callable[[Item], dict[str, Any]]
) -> dict[str, Any]:
    """The next items, as many as were asked for. Only those are looked at any closer than by their name."""
    shown = list(islice(items, page_size(exchange)))
    body: dict[str, Any] = {title: [entry(item) for item in shown]}
    if next(items, None) is not None:
        body["next_cursor"] = cursor_after(shown[-1].name)
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
    """The same in a list that is in the order of seqs; 0 for the first page."""
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
