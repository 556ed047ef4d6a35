"""The moves of a topic: seqs are given out, shown or taken back, and found again in its runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.log.harness import T0, Lab
from tests.support.appending import rows_of
from topics.log.remove import ledger
from topics.log.run import HotColumns, Run
from topics.log.seal.checkpoint import capture_topic, restore_topic
from topics.log.topic import Topic


@pytest.fixture
def topic(lab: Lab) -> Topic:
    """Runs of 1 to 4, 5 to 8, 9 and 10, of which 6 is deleted."""
    lab.put("t")
    for seq in range(1, 11):
        lab.write("t", {"data": seq, "tag": f"k{seq}"})
    lab.delete("t", match="k6")
    return lab.topic("t")


def assign(topic: Topic, count: int, *, ephemeral: bool = False) -> None:
    topic.append(rows_of([b"1"] * count, topic.assigned + 1, T0), 0, is_kept=not ephemeral)


def spans(topic: Topic, first: int, stop_before: int) -> list[tuple[int, int]]:
    return [
        (run.base + start, run.base + stop) for run, start, stop in topic.runs.stretches(first, stop_before)
    ]


def sums_are_right(topic: Topic) -> bool:
    return (topic.totals.pending_bytes, topic.totals.bytes) == (topic.pending_bytes, topic.live_bytes)


@pytest.mark.parametrize(
    ("first", "stop_before", "expected"),
    [
        (1, 11, [(1, 5), (5, 9), (9, 11)]),
        (0, 3, [(1, 3)]),
        (4, 5, [(4, 5)]),
        (5, 10, [(5, 9), (9, 10)]),
        (8, 8, []),
        (11, 20, []),
    ],
)
def test_the_walk_over_runs_meets_each_stretch_once(
    topic: Topic, first: int, stop_before: int, expected: list[tuple[int, int]]
) -> None:
    assert spans(topic, first, stop_before) == expected


@pytest.mark.parametrize("seqs", [[2, 3, 6, 9], np.array([2, 3, 6, 9])])
def test_seqs_are_grouped_by_the_run_that_holds_them(topic: Topic, seqs: list[int]) -> None:
    assert [(run.base, list(inside)) for run, inside in topic.runs.by_run(seqs)] == [
        (1, [2, 3]),
        (5, [6]),
        (9, [9]),
    ]


@pytest.mark.parametrize("ephemeral", [False, True])
@pytest.mark.parametrize("by", ["records", "bytes"])
def test_a_run_is_full_when_it_has_what_fits(lab: Lab, ephemeral: bool, by: str) -> None:
    lab.put("t", durability="ephemeral" if ephemeral else "disk")
    topic, unsealed = lab.topic("t"), lab.engine.store.unsealed
    if by == "bytes":
        assign(topic, 3, ephemeral=ephemeral)
        unsealed.max_bytes = topic.runs[0].hot.size + len(b'{"$seq":4,"$ts":1700000000000,"data":1}\n')
        unsealed.max_events = 100
    else:
        assign(topic, 3, ephemeral=ephemeral)
    assert not unsealed.is_full(topic.runs[0])
    assign(topic, 1, ephemeral=ephemeral)
    # One that is never sealed does not wait for it.
    assert unsealed.is_full(topic.runs[0]) is not ephemeral
    assign(topic, 1, ephemeral=ephemeral)
    assert [(run.base, run.count) for run in topic.runs] == [(1, 4), (5, 1)]


def test_what_is_assigned_is_pending_until_it_is_published(topic: Topic) -> None:
    live = topic.live_count
    assign(topic, 3)
    assert (topic.assigned, topic.head, topic.pending_count, topic.pending_bytes) == (13, 10, 3, 3)
    assert (topic.first_live(11), topic.live_count) == (11, live)
    topic.publish(3, 3, T0)
    assert (topic.assigned, topic.head, topic.pending_count, topic.live_count) == (13, 13, 0, live + 3)
    assert sums_are_right(topic)


def test_what_is_taken_back_leaves_no_trace(lab: Lab, topic: Topic) -> None:
    before = lab.state("t"), [(run.base, run.count) for run in topic.runs], topic.store.unsealed.bytes
    assign(topic, 1)
    assign(topic, 4)
    topic.take_back_all()
    assert (topic.assigned, topic.pending_count, topic.pending_bytes) == (topic.head, 0, 0)
    after = lab.state("t"), [(run.base, run.count) for run in topic.runs], topic.store.unsealed.bytes
    assert after == before
    assert sums_are_right(topic)
    assert lab.write("t", "next").first_seq == 11


def test_the_first_live_seq_of_a_run_whose_marks_are_in_its_file(lab: Lab, topic: Topic) -> None:
    lab.checkpoint(everything=True)
    lab.restart(clean=True)
    topic = lab.topic("t")
    assert topic.runs[1].dead is None
    assert topic.first_live(6) == 7


def test_a_run_from_its_journal_waits_for_a_segment_and_one_from_a_file_does_not(
    lab: Lab, topic: Topic
) -> None:
    unsealed = topic.store.unsealed
    hot, emptied = Run(topic.id, 20, HotColumns(20)), Run(topic.id, 30, None)
    topic.insert_run(emptied)
    topic.insert_run(hot)
    assert (hot in unsealed.runs, emptied in unsealed.runs) == (True, False)
    assert topic.runs.bases[-2:] == [20, 30]


def test_the_floor_has_the_time_of_the_first_of_several(lab: Lab) -> None:
    lab.put("t")
    topic = lab.topic("t")
    assign(topic, 2)
    topic.publish(2, 2, T0 + 5, T0 + 1)
    assert (topic.floor, topic.floor_ts, topic.last_write_ts) == (1, T0 + 1, T0 + 5)
    lab.put("u")
    other = lab.topic("u")
    assign(other, 1)
    other.publish(1, 1, T0 + 5)
    assert other.floor_ts == T0 + 5


def test_a_hole_at_the_top_is_inside_only_if_something_lies_below_it(lab: Lab, topic: Topic) -> None:
    topic.add_hole(11, 10, ledger.LOST)
    assert topic.holes == []
    topic.add_hole(11, 15, ledger.LOST)
    assert (topic.head, topic.assigned, topic.holes[0].interior) == (15, 15, True)
    lab.put("empty")
    empty = lab.topic("empty")
    empty.add_hole(1, 5, ledger.LOST)
    assert (empty.head, empty.floor, empty.loss_line, empty.holes[0].interior) == (5, 6, 6, False)
    empty.add_hole(6, 5, ledger.LOST)
    assert (empty.head, len(empty.holes)) == (5, 1)
    topic.add_hole(16, 16, ledger.TRIM)
    assert (topic.head, topic.holes[1].first, topic.holes[1].last) == (16, 16, 16)


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_captured_can_be_restored(lab: Lab, topic: Topic, sealed: bool) -> None:
    if sealed:
        lab.checkpoint(everything=True)
    state = capture_topic(topic)
    other = Topic(
        topic.id,
        topic.seq_base,
        topic.changed,
        name=topic.name,
        config=topic.config,
        store=topic.store,
        totals=topic.totals,
        clock_mark=topic.clock_mark,
    )
    restore_topic(other, state)
    assert len(other.runs) == (3 if sealed else 0)
    if sealed:
        assert capture_topic(other) == state
    # Deletions of records that no segment has are told beside the runs.
    assert np.frombuffer(state.unsealed_dead, np.int64).tolist() == ([] if sealed else [6])
    assert (other.head, other.floor, other.reserved) == (topic.head, topic.floor, topic.reserved)
