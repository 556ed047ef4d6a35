"""Appends made by hand to an engine without an event loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topics import codec
from topics.core.errors import ApiError
from topics.core.strict import UnknownFields
from topics.log.engine import Engine
from topics.log.topic import Topic
from topics.log.write.append import Append, AppendOp


@dataclass
class Appended:
    """The result of an append request."""

    topic: Topic
    first_seq: int
    count: int
    created: bool = False
    deduped: bool = False
    wal_ms: float = 0.0
    fsync_ms: float = 0.0

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    @property
    def head_seq(self) -> int:
        return self.last_seq


class ByHand(Append):
    """An append request that reports to two functions."""

    def __init__(
        self,
        name: str,
        body: bytes,
        done: Callable[[Appended], None],
        fail: Callable[[ApiError], None],
        key: bytes | None = None,
        *,
        may_configure: bool = True,
        unknown_fields: UnknownFields | None = None,
    ) -> None:
        super().__init__(name, body, key=key, unknown_fields=unknown_fields)
        self._done = done
        self._fail = fail
        self._may_configure = may_configure

    def committed(
        self, topic: Topic, first_seq: int, count: int, with_seqs: bool, op: AppendOp | None
    ) -> None:
        if op is None:
            self._done(Appended(topic, first_seq, count, deduped=True))
        else:
            is_created = op.created_by is self
            self._done(Appended(topic, first_seq, count, is_created, False, op.wal_ms, op.fsync_ms))

    def fail(self, error: ApiError) -> None:
        self._fail(error)

    @property
    def may_configure(self) -> bool:
        return self._may_configure


def append(
    engine: Engine,
    name: str,
    body: bytes,
    done: Callable[[Appended], None],
    fail: Callable[[ApiError], None],
    *,
    key: bytes | None = None,
    may_configure: bool = True,
) -> None:
    """Append, and assign seqs at once. Raises if the request is refused at once."""
    refusals: list[ApiError] = []
    is_over = False

    def failed(error: ApiError) -> None:
        if is_over:
            fail(error)
        else:
            refusals.append(error)

    engine.append(ByHand(name, body, done, failed, key, may_configure=may_configure))
    engine.queue.assign_pending()
    is_over = True
    if refusals:
        raise refusals[0]


def write_of(body: bytes) -> codec.Write:
    """The records of a body; raises if it has a mistake."""
    return codec.explain(body, UnknownFields.refuse)


def body_of(*data: object) -> bytes:
    """The body of a request with a record for each value."""
    return json.dumps({"records": [{"data": value} for value in data]}).encode()


def rows_of(
    data: Sequence[bytes],
    first_seq: int,
    ts: int,
    *,
    metas: list[bytes | None] | None = None,
    nodes: list[str | None] | None = None,
    tags: list[str | None] | None = None,
    hops: bytes | None = None,
) -> codec.Rows:
    """Encoded records with these data."""
    return codec.encode([codec.from_values(data, metas, (tags, nodes))], first_seq, ts, hops)
