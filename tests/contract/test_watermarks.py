"""Floor and loss line: what each kind of removal moves, told by what readers are told."""

from __future__ import annotations

import time

from tests.contract.conftest import NewTopic
from tests.contract.server import TopicHandle

TTL_MS = 250
LATER_S = 0.4


def lines(topic: TopicHandle) -> tuple[int, int, int]:
    """Head, floor, and the loss line: one above the lowest cursor that gets no tombstone."""
    state = topic.state()
    silent = next(seq for seq in range(state["head_seq"] + 1) if topic.gap(seq) is None)
    assert all(topic.gap(seq) is None for seq in range(silent, state["head_seq"] + 1))
    return state["head_seq"], state["earliest_seq"], silent + 1


def fill_tagged(topic: TopicHandle, count: int) -> None:
    """Seq n carries the tag `n`."""
    first = topic.state()["next_seq"]
    for number in range(first, first + count):
        topic.records({"data": number, "tag": f"{number}"})


def test_nothing_written(new_topic: NewTopic) -> None:
    topic = new_topic()
    assert lines(topic) == (0, 1, 1)
    page = topic.diff(0)
    assert (page["records"], page["next_from_seq"], page["caught_up"], page["lag"]) == ([], 0, True, 0)


def test_plain_writes(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(5)
    assert lines(topic) == (5, 1, 1)
    page = topic.diff(5)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 5, True)


def test_a_record_cap_evicts_the_oldest(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=4)
    topic.fill(9)
    assert lines(topic) == (9, 6, 6)
    assert topic.gap(0) == (1, 5, "cap")
    assert topic.seqs(0) == [6, 7, 8, 9]
    assert topic.diff(0)["next_from_seq"] == 9
    assert topic.gap(4) == (5, 5, "cap")
    assert topic.gap(5) is None


def test_a_deleted_prefix_is_silent(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(6)
    topic.delete(before_seq=4)
    assert lines(topic) == (6, 4, 1)
    assert topic.seqs(0) == [4, 5, 6]


def test_deleted_slots_are_not_counted_by_a_cap(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=5)
    topic.fill(5)
    topic.delete(before_seq=3)
    topic.fill(2)
    assert lines(topic) == (7, 3, 1)
    assert topic.seqs(0) == [3, 4, 5, 6, 7]
    topic.fill(1)
    assert lines(topic) == (8, 4, 4)
    assert topic.gap(0) == (1, 3, "cap")
    assert topic.gap(2) == (3, 3, "cap")
    assert topic.gap(3) is None


def test_a_gap_ends_at_the_floor_even_where_a_delete_prolonged_it(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=6)
    topic.fill(9)
    topic.delete(before_seq=7)
    assert lines(topic) == (9, 7, 4)
    page = topic.diff(0)
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 6)
    assert page["tombstone"]["earliest_seq"] == 7
    assert topic.seqs(0) == [7, 8, 9]
    assert topic.gap(2) == (3, 6, "cap")
    assert topic.gap(3) is None
    assert topic.seqs(3) == [7, 8, 9]


def test_a_ttl_takes_records_one_by_one(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=400)
    topic.fill(2)
    time.sleep(0.3)
    topic.fill(1)
    assert topic.seqs(0) == [1, 2, 3]
    time.sleep(0.2)
    assert lines(topic) == (3, 3, 3)
    assert topic.gap(0) == (1, 2, "ttl")
    assert topic.seqs(0) == [3]


def test_everything_expired_against_everything_deleted(new_topic: NewTopic) -> None:
    expired, deleted = new_topic(ttl_ms=TTL_MS), new_topic()
    expired.fill(7)
    deleted.fill(7)
    deleted.delete(before_seq=8)
    time.sleep(LATER_S)
    for topic in (expired, deleted):
        page = topic.diff(0)
        assert (page["records"], page["next_from_seq"], page["caught_up"], page["lag"]) == ([], 7, True, 0)
        assert page["earliest_seq"] == 8
        assert (topic.state()["count"], topic.state()["bytes"]) == (0, 0)
    assert lines(expired) == (7, 8, 8)
    assert expired.gap(0) == (1, 7, "ttl")
    assert expired.gap(6) == (7, 7, "ttl")
    assert expired.gap(7) is None
    assert lines(deleted) == (7, 8, 1)


def test_both_kinds_of_loss_in_one_gap(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3, ttl_ms=TTL_MS)
    topic.fill(5)
    time.sleep(LATER_S)
    assert lines(topic) == (5, 6, 6)
    assert topic.gap(0) == (1, 5, "mixed")
    assert topic.gap(1) == (2, 5, "mixed")
    assert topic.gap(2) == (3, 5, "ttl")


def test_a_deleted_record_growing_old_moves_nothing(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=TTL_MS)
    fill_tagged(topic, 2)
    topic.delete(match="2")
    time.sleep(LATER_S)
    topic.fill(1)
    assert lines(topic) == (3, 3, 2)
    assert topic.gap(0) == (1, 2, "ttl")
    assert topic.gap(1) is None
    assert topic.seqs(1) == [3]


def test_only_deleted_records_growing_old_are_silent(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=TTL_MS)
    topic.fill(4)
    topic.delete(before_seq=5)
    time.sleep(LATER_S)
    assert lines(topic) == (4, 5, 1)


def test_deletes_in_the_middle_and_a_floor_that_jumps(new_topic: NewTopic) -> None:
    topic = new_topic()
    fill_tagged(topic, 5)
    topic.delete(match="1")
    topic.delete(match="3")
    assert lines(topic) == (5, 2, 1)
    assert topic.seqs(0) == [2, 4, 5]
    topic.delete(match="2")
    assert lines(topic) == (5, 4, 1)
    assert topic.seqs(0) == [4, 5]


def test_a_deleted_slot_below_a_full_cap_is_no_eviction(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3)
    fill_tagged(topic, 3)
    topic.delete(match="1")
    topic.fill(1)
    assert lines(topic) == (4, 2, 1)
    assert topic.seqs(0) == [2, 3, 4]


def test_dead_slots_passed_by_an_eviction_do_not_raise_the_line(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3)
    fill_tagged(topic, 3)
    topic.delete(match="2")
    topic.fill(2)
    # Live were 1, 3, 4, 5: only 1 was evicted; the floor then steps over the deleted 2.
    assert lines(topic) == (5, 3, 2)
    assert topic.gap(0) == (1, 2, "cap")
    assert topic.gap(1) is None


def test_a_record_larger_than_the_byte_cap(new_topic: NewTopic) -> None:
    topic = new_topic(cap_bytes=3)
    assert topic.write("too large")["seqs"] == [1]
    assert lines(topic) == (1, 2, 2)
    assert topic.gap(0) == (1, 1, "cap")


def test_an_idle_topic_shows_expiry_everywhere_at_once(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=TTL_MS)
    topic.fill(3)
    time.sleep(LATER_S)
    listed = topic.server.send("GET", f"/v0/topics?prefix={topic.name}").ok()["topics"]
    entry = next(entry for entry in listed if entry["topic"] == topic.name)
    assert (entry["earliest_seq"], entry["count"], entry["bytes"]) == (4, 0, 0)

    other = new_topic(ttl_ms=TTL_MS)
    other.fill(3)
    time.sleep(LATER_S)
    deleted = other.delete(before_seq=4)
    assert (deleted["deleted"], deleted["earliest_seq"], deleted["count"]) == (0, 4, 0)
    assert other.gap(0) == (1, 3, "ttl")


def test_the_line_never_falls_when_retention_is_loosened(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    topic.fill(5)
    topic.put(cap_records=100)
    topic.fill(2)
    assert lines(topic) == (7, 4, 4)
    assert topic.gap(0) == (1, 3, "cap")
    assert topic.seqs(0) == [4, 5, 6, 7]


def test_a_huge_ttl_expires_nothing(new_topic: NewTopic) -> None:
    for ttl_ms in (2**53, 2**63, 2**64 - 1):
        topic = new_topic(ttl_ms=ttl_ms)
        topic.fill(2)
        assert topic.seqs(0) == [1, 2]
        assert topic.state()["count"] == 2
