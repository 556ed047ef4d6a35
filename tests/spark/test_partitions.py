"""Tasks: together they cover the read exactly once, in few pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_topics.offsets import NO_EPOCH, StreamOffset, TopicView
from pyspark_topics.options import SourceOptions, parse_read
from pyspark_topics.partitions import SeqRange, TaskPartition, ranges_between, split


def options(**extra: object) -> SourceOptions:
    texts = {name: str(value) for name, value in extra.items()}
    return parse_read({"url": "http://x", "subscribe": "a", **texts}, streaming=False)


def whole(topic: str, start: int, end: int) -> SeqRange:
    return SeqRange(topic, StreamOffset(start, 1), end, 1, end - start)


def pieces(tasks: list[TaskPartition], topic: str) -> list[tuple[int, int]]:
    return [(one.start.seq, one.to_seq) for task in tasks for one in task.ranges if one.topic == topic]


@given(
    ends=st.lists(st.integers(1, 5000), min_size=1, max_size=5),
    least=st.integers(1, 12),
    most=st.one_of(st.none(), st.integers(1, 700)),
)
def test_pieces_join_up_and_keep_to_the_largest_size(ends: list[int], least: int, most: int | None) -> None:
    ranges = [whole(f"t{index}", 3, 3 + end) for index, end in enumerate(ends)]
    limit = {} if most is None else {"maxRecordsPerPartition": most}
    tasks = split(ranges, options(minPartitions=least, **limit))
    for one in ranges:
        found = pieces(tasks, one.topic)
        assert found[0][0] == one.start.seq
        assert found[-1][1] == one.to_seq
        assert all(before[1] == after[0] for before, after in pairwise(found))
    if most is not None:
        assert all(sum(one.weight for one in task.ranges) <= most for task in tasks)
    assert len(tasks) >= min(least, sum(ends))


def test_a_handful_of_records_from_many_topics_is_one_task() -> None:
    tasks = split([whole(f"t{index}", 0, 3) for index in range(200)], options())
    assert len(tasks) == 1
    assert len(tasks[0].ranges) == 200


def test_a_dead_front_stays_with_the_first_piece() -> None:
    """Its loss is announced once, and not cut where pieces happen to meet."""
    views = {"a": TopicView("a", 1, 200, 101)}
    ranges = ranges_between({"a": StreamOffset(0, 1)}, {"a": StreamOffset(200, 1)}, views)
    tasks = split(ranges, options(minPartitions=2))
    assert pieces(tasks, "a") == [(0, 150), (150, 200)]


def test_topics_that_stand_still_have_no_range() -> None:
    at = {"a": StreamOffset(5, 1)}
    assert ranges_between(at, at, {}) == []
    assert split([], options()) == []


def test_a_start_in_an_earlier_life_is_kept_so_that_it_can_be_announced() -> None:
    (one,) = ranges_between({"a": StreamOffset(9, 1)}, {"a": StreamOffset(9, 2)}, {})
    assert (one.start, one.to_seq, one.epoch) == (StreamOffset(9, 1), 9, 2)


@pytest.mark.parametrize("start", [{}, {"a": StreamOffset(0, NO_EPOCH)}])
def test_a_topic_that_did_not_exist_was_not_missed(start: dict[str, StreamOffset]) -> None:
    (one,) = ranges_between(start, {"a": StreamOffset(4, 3)}, {})
    assert one.start == StreamOffset(0, 3)


def test_a_plan_from_before_a_topic_was_created_reads_nothing_of_it() -> None:
    planned = {"a": StreamOffset(0, NO_EPOCH)}
    assert ranges_between({"a": StreamOffset(0, 3)}, planned, {}) == []
