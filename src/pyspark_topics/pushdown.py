"""Spark's filters on seq, ts, tag and node, as far as they make a read smaller."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_topics.offsets import Position
from pyspark_topics.options import ReadOptions
from pyspark_topics.reading import ScanFilter


@dataclass(frozen=True)
class Narrowing:
    """Bounds that hold for every row the query can use. Each filter can only tighten them."""

    after_seq: int = 0
    to_seq: int | None = None
    since_ts: int | None = None
    until_ts: int | None = None
    tag: Any = None
    nodes: tuple[str, ...] = ()

    def with_filter(self, one: Filter) -> Narrowing:
        if isinstance(one, Not) and isinstance(one.child, EqualTo) and one.child.attribute == ("node",):
            return replace(self, nodes=(*self.nodes, str(one.child.value)))
        attribute, value = getattr(one, "attribute", None), getattr(one, "value", None)
        if attribute == ("seq",) and isinstance(value, int):
            return self._with_seq(one, value)
        if attribute == ("ts",) and isinstance(value, datetime):
            return self._with_ts(one, value)
        if attribute == ("tag",) and isinstance(value, str) and self.tag is None:
            return self._with_tag(one, value)
        return self

    def _with_seq(self, one: Filter, value: int) -> Narrowing:
        low, high = _bounds(one, value)
        narrowed = self
        if low is not None:
            narrowed = replace(narrowed, after_seq=max(self.after_seq, low - 1))
        if high is not None:
            narrowed = replace(narrowed, to_seq=high if self.to_seq is None else min(self.to_seq, high))
        return narrowed

    def _with_ts(self, one: Filter, value: datetime) -> Narrowing:
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        # Records have milliseconds, Spark microseconds: keep the whole millisecond at either end.
        ms = int(moment.timestamp() * 1000)
        narrowed = self
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            narrowed = replace(narrowed, since_ts=max(self.since_ts or 0, ms))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            until = max(ms + 2, 0)
            narrowed = replace(
                narrowed, until_ts=until if self.until_ts is None else min(self.until_ts, until)
            )
        return narrowed

    def _with_tag(self, one: Filter, value: str) -> Narrowing:
        if isinstance(one, EqualTo):
            return replace(self, tag=["tag", "Eq", value])
        if isinstance(one, StringStartsWith):
            return replace(self, tag=["tag", "Glob", value + "*"])
        return self

    def between(self, start: Position, end: Position) -> tuple[Position, Position]:
        if not start.leads_to(end):  # a start in another life of the topic has to be announced as it is
            return start, end
        low = max(start.seq, min(self.after_seq, end.seq))
        high = end.seq if self.to_seq is None else max(min(end.seq, self.to_seq), low)
        return Position(low, start.epoch), Position(high, end.epoch)

    def filter(self, options: ReadOptions) -> ScanFilter:
        """Together with what the options say. A tag of the options wins: only one fits in a scan."""
        return ScanFilter(
            (*options.nodes, *self.nodes),
            self.tag if options.tag is None else options.tag,
            self.since_ts,
            self.until_ts,
        )


def _bounds(one: Filter, value: int) -> tuple[int | None, int | None]:
    """First and last value that can pass."""
    if isinstance(one, EqualTo):
        return value, value
    if isinstance(one, GreaterThan):
        return value + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return value, None
    if isinstance(one, LessThan):
        return None, value - 1
    if isinstance(one, LessThanOrEqual):
        return None, value
    return None, None
