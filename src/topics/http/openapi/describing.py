"""The words in which a route is described for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from topics.http.wire.answer_heads import ARROW
from topics.http.wire.event_stream import CONTENT_TYPE as EVENTS
from topics.values.settings import MAX_IDEMPOTENCY_KEY_BYTES

TEXT, EVENT_STREAM, ARROW_STREAM = "text/plain", EVENTS.decode(), ARROW.decode()


@dataclass(frozen=True, kw_only=True)
class Query:
    name: str
    text: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    id: str
    tag: str
    summary: str
    # By status: a model for JSON, or the name of another media type.
    answers: dict[int, Any]
    # The struct a JSON body is decoded into, or the media type of another body.
    takes: Any = None
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    errors: tuple[str, ...] = ()


def text(name: str, about: str, *, required: bool = False, **keywords: Any) -> Query:
    return Query(name=name, text=about, schema={"type": "string", **keywords}, required=required)


def switch(name: str, about: str, *, default: bool) -> Query:
    return Query(name=name, text=about, schema={"type": "boolean", "default": default})


def number(name: str, about: str, **keywords: Any) -> Query:
    return Query(name=name, text=about, schema={"type": "integer", "minimum": 0, **keywords})


KEY_HEADER = text("Idempotency-Key", "Used when the body names no key.", maxLength=MAX_IDEMPOTENCY_KEY_BYTES)

ONE_TOPIC, NO_TOPIC = "/v0/topics/:topic", "topic_not_found"
# What is wrong with rows, and what may be wrong with writing them.
BAD_ROWS = ("record_too_large", "batch_too_large")
BAD_WRITE = (NO_TOPIC, *BAD_ROWS, "topic_full")
