"""The records everybody is measured with: JSON objects of 125 bytes, in several shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

PAYLOAD_BYTES = 125
FILLER = "lorem-ipsum-dolor-sit-amet-consectetur-adipiscing-elit-sed-do-eiusmod-tempor-incididunt-ut-labore"
NODES = 4
TAGS = 1000


class Payload(msgspec.Struct, gc=False):
    """What readers decode into; `n` is the record's number in its topic, so that they can check."""

    n: int
    user: str
    kind: str
    at: int
    text: str


def payload(n: int, size: int = PAYLOAD_BYTES) -> dict[str, Any]:
    """Compact, it has exactly so many bytes."""
    value = {"n": n, "user": f"u-{n % 9973}", "kind": "click", "at": 1_700_000_000_000 + n, "text": ""}
    value["text"] = FILLER[: size - len(compact(value))]
    return value


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def spaced(value: Any) -> bytes:
    return json.dumps(value).encode()


def node(n: int) -> str:
    return f"node-{n % NODES}"


def tag(n: int) -> str:
    return f"order:{n % TAGS:04d}"


def meta(n: int) -> dict[str, Any]:
    return {"trace": f"{n:016x}", "source": "web"}


@dataclass(frozen=True)
class Shape:
    name: str
    is_spaced: bool = False
    has_names: bool = False
    has_meta: bool = False
    # One of so many records is deleted before it is read; 0: none.
    deleted_every: int = 0
    payload_bytes: int = PAYLOAD_BYTES

    def text(self, value: Any) -> bytes:
        return spaced(value) if self.is_spaced else compact(value)

    def record(self, n: int) -> dict[str, Any]:
        names = {"tag": tag(n), "node": node(n)} if self.has_names else {}
        more = {"meta": meta(n)} if self.has_meta else {}
        return {"data": payload(n, self.payload_bytes), **names, **more}

    def body(self, numbers: Sequence[int]) -> bytes:
        """A write as our HTTP API takes it."""
        return self.text({"records": [self.record(n) for n in numbers]})

    def fields(self, n: int) -> list[bytes]:
        """The same record as fields of a Redis stream entry; the payload comes last."""
        names = [b"tag", tag(n).encode(), b"node", node(n).encode()] if self.has_names else []
        more = [b"meta", self.text(meta(n))] if self.has_meta else []
        return [*names, *more, b"data", self.text(payload(n, self.payload_bytes))]


COMPACT = Shape("compact")
SPACED = Shape("with spaces", is_spaced=True)
NAMED = Shape("tags and nodes", has_names=True)
WITH_META = Shape("meta", has_meta=True)
DELETED = Shape("10 % deleted", deleted_every=10)
SHORT = Shape("compact, 100 bytes", payload_bytes=100)
SHAPES = (COMPACT, SPACED, NAMED, DELETED)
WRITTEN_SHAPES = (COMPACT, SPACED, NAMED)
