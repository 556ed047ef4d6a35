"""Announced loss: when a reader is told, what it is told, and instances that came after."""

from __future__ import annotations

import pytest

from tests.contract.conftest import NewTopic


def test_a_tombstone_is_a_success_with_records_behind_it(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3)
    topic.write(*range(10))
    page = topic.diff(2, limit=2)
    assert page["tombstone"] == {
        "gap_from": 3,
        "gap_to": 7,
        "reason": "cap",
        "missed_estimate": 5,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert [record["$seq"] for record in page["records"]] == [8, 9]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (9, False, 1)
    assert topic.diff(9)["tombstone"] is None


def test_node_filtering_is_never_announced(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=4)
    topic.records(*[{"data": n, "node": "own"} for n in range(6)])
    page = topic.diff(2, node="own")
    assert (page["records"], page["tombstone"], page["next_from_seq"]) == ([], None, 6)
    page = topic.diff(0, node="own")
    assert page["tombstone"]["gap_to"] == 2
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 6, True)


def test_deletes_never_change_who_gets_a_tombstone(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=5)
    topic.records(*[{"data": n, "tag": f"t{n % 2}"} for n in range(9)])
    warned = [seq for seq in range(10) if topic.diff(seq)["tombstone"]]
    assert warned == [0, 1, 2, 3]
    for selector in ({"match": "t1"}, {"before_seq": 8}, {"before_seq": 100}):
        topic.delete(**selector)
        assert [seq for seq in range(10) if topic.diff(seq)["tombstone"]] == warned
    assert topic.gap(0) == (1, 9, "cap")
    assert topic.gap(3) == (4, 9, "cap")


def test_a_cursor_ahead_of_the_head_means_another_instance(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(*range(40))
    topic.drop().ok()
    topic.write(*range(12))
    tail = topic.diff(12)
    assert (tail["records"], tail["caught_up"], tail["tombstone"]) == ([], True, None)
    page = topic.diff(40)
    assert page["tombstone"]["reason"] == "recreated"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 0)
    assert page["tombstone"]["missed_estimate"] == 0
    assert [record["$seq"] for record in page["records"]] == list(range(1, 13))
    assert page["next_from_seq"] == 12


@pytest.mark.parametrize("cursor", [1, 9, 2**63, 2**64 - 1])
def test_a_cursor_ahead_of_an_empty_topic(new_topic: NewTopic, cursor: int) -> None:
    page = new_topic().diff(cursor)
    gap = page["tombstone"]
    assert (gap["reason"], gap["gap_from"], gap["gap_to"], gap["missed_estimate"]) == ("recreated", 1, 0, 0)
    assert (page["records"], page["next_from_seq"], page["caught_up"], page["lag"]) == ([], 0, True, 0)


def test_recreated_resumes_at_the_floor_and_counts_what_is_below_it(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    topic.write(*range(5))
    page = topic.diff(6)
    gap = page["tombstone"]
    assert (gap["reason"], gap["gap_from"], gap["gap_to"], gap["missed_estimate"]) == ("recreated", 1, 3, 3)
    assert [record["$seq"] for record in page["records"]] == [4, 5]


def test_an_epoch_tells_instances_apart_where_the_cursor_cannot(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(*range(5))
    old = topic.diff(0)["epoch"]
    assert topic.diff(3, epoch=old)["tombstone"] is None
    topic.drop().ok()
    topic.write(*range(8))
    new = topic.diff(0)["epoch"]
    page = topic.diff(5, epoch=old)
    assert page["tombstone"]["reason"] == "recreated"
    assert [record["$seq"] for record in page["records"]] == list(range(1, 9))
    assert topic.diff(8, epoch=old)["tombstone"]["reason"] == "recreated"
    assert topic.seqs(5, epoch=new) == [6, 7, 8]
    assert topic.diff(5)["tombstone"] is None
    assert topic.diff(5, epoch=new + 1)["tombstone"]["reason"] == "recreated"


def test_recreated_outranks_loss(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=1)
    topic.write(*range(5))
    epoch = topic.diff(0)["epoch"]
    assert topic.diff(1, epoch=epoch)["tombstone"]["reason"] == "cap"
    assert topic.diff(1, epoch=epoch + 1)["tombstone"]["reason"] == "recreated"
