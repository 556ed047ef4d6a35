"""A record's own time, inside its meta."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyspark_topics.errors import BadRow
from pyspark_topics.rows import TIMESTAMP, event_ts_of, with_event_ts


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def times(*values: int | None) -> pa.Array:
    return pa.array([None if ms is None else ms * 1000 for ms in values], TIMESTAMP)


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        (None, None),
        ("{}", None),
        ('{"event_ts":1500}', at(1500)),
        ('{"a":{"event_ts":7},"event_ts":-1}', at(-1)),
        ('{"a":{"event_ts":7}}', None),
        ('{"event_ts":"soon"}', None),
        ('{"event_ts":null}', None),
        ('{"event_ts":99999999999999999}', None),
        ('["event_ts"]', None),
    ],
)
def test_what_is_found_in_meta(meta: str | None, found: datetime | None) -> None:
    assert event_ts_of(pa.array([meta, None], pa.string())).to_pylist() == [found, None]


def test_times_are_put_into_meta_and_leave_the_rest_as_it_is() -> None:
    meta = pa.array([None, '{"a":1e2}', '{"event_ts":5}', '{"b":1}'], pa.string())
    put = with_event_ts(meta, times(1, 2, 3, None)).to_pylist()
    assert put == ['{"event_ts":1}', '{"a":1e2,"event_ts":2}', '{"event_ts":3}', '{"b":1}']
    assert with_event_ts(None, times(1, None)).to_pylist() == ['{"event_ts":1}', None]


def test_a_time_that_is_there_is_kept_where_that_is_asked_for() -> None:
    meta = pa.array(['{"event_ts":5}', None, '{"a":1}'], pa.string())
    kept = with_event_ts(meta, times(9, 9, 9), keep=True).to_pylist()
    assert [json.loads(text) for text in kept] == [{"event_ts": 5}, {"event_ts": 9}, {"a": 1, "event_ts": 9}]


def test_a_meta_that_is_no_object_has_no_room_for_it() -> None:
    with pytest.raises(BadRow, match="no object"):
        with_event_ts(pa.array(["[1]"]), times(1))
