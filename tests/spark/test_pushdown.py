"""Filters make a read smaller, and never smaller than what Spark asked for."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_topics.batch import Narrowing
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.options import parse_read

SEQ, TS, TAG, NODE = ("seq",), ("ts",), ("tag",), ("node",)


def narrowed(*filters: Filter) -> Narrowing:
    result = Narrowing()
    for one in filters:
        result = result.with_filter(one)
    return result


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(SEQ, 5), LessThan(SEQ, 9)], (5, 8)),
        ([GreaterThanOrEqual(SEQ, 5), LessThanOrEqual(SEQ, 9)], (4, 9)),
        ([EqualTo(SEQ, 7)], (6, 7)),
        ([GreaterThan(SEQ, 5), GreaterThan(SEQ, 3)], (5, 20)),
        ([LessThan(SEQ, 5), LessThan(SEQ, 9)], (2, 4)),
        ([LessThan(SEQ, -5)], (2, 2)),
        ([GreaterThan(SEQ, 500)], (20, 20)),
        ([GreaterThan(SEQ, -5)], (2, 20)),
        ([In(SEQ, (3, 4))], (2, 20)),
        ([GreaterThan(("data", "seq"), 5)], (2, 20)),
    ],
)
def test_seq(filters: list[Filter], expected: tuple[int, int]) -> None:
    start, end = narrowed(*filters).between(StreamOffset(2, 1), StreamOffset(20, 1))
    assert (start.seq, end.seq) == expected


def test_a_start_that_has_to_be_announced_stays() -> None:
    ends = StreamOffset(90, 1), StreamOffset(20, 2)
    assert narrowed(GreaterThan(SEQ, 10)).between(*ends) == ends


def test_times_keep_the_whole_millisecond() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    ms = 1_767_323_045_678
    both = narrowed(GreaterThan(TS, moment), LessThanOrEqual(TS, moment))
    assert both.since_ts == ms
    assert both.until_ts is not None
    assert both.until_ts > ms + 1  # exclusive, and the record of the next millisecond is Spark's to judge


def test_times_before_all_records_are_ones_the_server_takes() -> None:
    moment = datetime(1960, 1, 2, tzinfo=UTC)
    assert narrowed(GreaterThan(TS, moment)).since_ts == 0
    assert narrowed(LessThanOrEqual(TS, moment)).until_ts == 0


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (EqualTo(TAG, "a*"), ["tag", "Eq", "a*"]),
        (StringStartsWith(TAG, "a"), ["tag", "Glob", "a*"]),
        (Not(EqualTo(TAG, "a")), None),
        (EqualTo(TAG, None), None),
    ],
)
def test_tags(one: Filter, expected: Any) -> None:
    assert narrowed(one).tag == expected


def test_together_with_the_options() -> None:
    options = parse_read({"url": "http://x", "subscribe": "a", "tag": "own", "node": "n1"}, streaming=False)
    chosen = narrowed(Not(EqualTo(NODE, "n2")), EqualTo(NODE, "n3"), EqualTo(TAG, "t")).filter(options)
    assert chosen.request() == {"node": ["n1", "n2"], "tag": "own"}
