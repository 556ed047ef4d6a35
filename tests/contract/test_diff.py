"""Reading from a cursor: limits, byte budget, cursor arithmetic."""

from __future__ import annotations

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.server import Server

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "delivered"),
    [
        (None, 256),
        (0, 256),
        (1, 1),
        (999, 999),
        (1000, 1000),
        (1001, 1000),
        (99_999, 1000),
        (2**64, 1000),
        (10**30, 1000),
    ],
)
def test_limit(server: Server, limit: int | None, delivered: int) -> None:
    topic = server.topic("limits")
    if topic.state()["head_seq"] == 0:
        topic.write(*range(1200))
    page = topic.diff(0) if limit is None else topic.diff(0, limit=limit)
    assert len(page["records"]) == delivered
    assert page["next_from_seq"] == delivered
    assert page["lag"] == 1200 - delivered
    topic.ask_diff(limit=-1).refused(400, "invalid_request")
    topic.ask_diff(limit=-(10**30)).refused(400, "invalid_request")
    # Python itself reads no integer of so many digits.
    endless = b'{"limit":%b}' % (b"1" * 60_000)
    assert len(server.send("POST", topic.path + "/diff", endless).ok()["records"]) == 1000
    negative = b'{"limit":-%b}' % (b"1" * 5000)
    server.send("POST", topic.path + "/diff", negative).refused(400, "invalid_request")


def test_huge_waits_and_budgets_are_clamped(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(1)
    assert topic.seqs(0, wait_ms=10**30) == [1]
    assert topic.seqs(0, max_batch_bytes=10**30) == [1]
    assert topic.seqs(0, max_batch_bytes=0) == [1]


def test_a_cursor_is_an_exclusive_lower_bound(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(5)
    assert topic.seqs(0) == [1, 2, 3, 4, 5]
    assert topic.seqs(3) == [4, 5]
    page = topic.diff(5)
    assert (page["records"], page["next_from_seq"], page["tombstone"]) == ([], 5, None)


def test_reading_changes_nothing(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    first = topic.diff(1)
    for _ in range(3):
        again = topic.diff(1)
        assert again["records"] == first["records"]
        assert again["next_from_seq"] == first["next_from_seq"]


def test_following_the_cursor_delivers_everything_once(new_topic: NewTopic) -> None:
    topic = new_topic()
    for start in range(0, 70, 7):
        records = [{"data": n, "tag": f"t{n % 5}", "node": f"n{n % 3}"} for n in range(start, start + 7)]
        topic.records(*records)
    topic.delete(match="t2")
    topic.delete(before_seq=4)
    expected = [n + 1 for n in range(70) if n % 5 != 2 and n % 3 != 1 and n + 1 >= 4]
    for limit in (1, 2, 3, 10, 1000):
        records, gaps = topic.drain(limit=limit, node="n1")
        assert [record["$seq"] for record in records] == expected
        assert gaps == []


def test_the_walk_stops_with_the_last_allowed_record(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1}, {"data": 2}, {"data": 3, "node": "own"})
    page = topic.diff(0, limit=2, node="own")
    assert [record["$seq"] for record in page["records"]] == [1, 2]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, False, 1)
    page = topic.diff(2, limit=2, node="own")
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)


def test_the_walk_stops_before_deleted_records_behind_the_last_allowed_one(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1}, {"data": 2, "tag": "x"}, {"data": 3, "tag": "x"})
    topic.delete(match="x")
    page = topic.diff(0, limit=1)
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (1, False, 2)
    page = topic.diff(1, limit=1)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)


def test_skipped_seqs_do_not_use_up_the_limit(new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(3):
        topic.records(*[{"data": 0, "node": "quay-1"}] * 400)
    page = topic.diff(0, limit=5, node="quay-1")
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1200, True)
    assert page["performance"]["records_scanned"] == 1200


def test_skipped_seqs_are_counted_as_scanned(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "tag": "x"}, {"data": 2, "node": "own"}, {"data": 3, "tag": "y"}, {"data": 4})
    topic.delete(match="y")
    page = topic.diff(0, node="own")
    assert [record["$seq"] for record in page["records"]] == [1, 4]
    assert page["performance"]["records_scanned"] == 4


def test_a_jumped_prefix_is_passed_but_not_scanned(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(10)
    topic.delete(before_seq=9)
    page = topic.diff(0)
    assert (page["next_from_seq"], page["performance"]["records_scanned"]) == (10, 2)
    assert topic.diff(10)["performance"]["records_scanned"] == 0


# Byte budget


def test_a_batch_stops_before_the_record_that_would_break_the_budget(new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(5):
        topic.write("x" * 98)
    page = topic.diff(0, max_batch_bytes=300)
    assert [record["$seq"] for record in page["records"]] == [1, 2, 3]
    assert (page["next_from_seq"], page["caught_up"]) == (3, False)
    assert topic.seqs(0, max_batch_bytes=299) == [1, 2]
    assert topic.seqs(0, max_batch_bytes=301) == [1, 2, 3]


def test_one_oversized_record_is_delivered_alone(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write("x" * 500, 1, "y" * 500, 2)
    assert topic.seqs(0, max_batch_bytes=1) == [1]
    assert topic.seqs(1, max_batch_bytes=1) == [2]
    assert topic.seqs(1, max_batch_bytes=10) == [2]
    assert topic.seqs(2, max_batch_bytes=10) == [3]
    assert topic.seqs(0, max_batch_bytes=503) == [1, 2]


def test_the_budget_counts_data_and_meta_but_not_tags_and_nodes(new_topic: NewTopic) -> None:
    topic = new_topic()
    record = {"data": "1234567", "meta": {"m": 1}, "tag": "t" * 200, "node": "n" * 100}
    topic.records(*[record] * 4)
    size = 9 + 7
    assert topic.state()["bytes"] == 4 * size
    for include_meta in (True, False):
        for include_tags in (True, False):
            fields = {"include_meta": include_meta, "include_tags": include_tags}
            assert topic.seqs(0, max_batch_bytes=2 * size, **fields) == [1, 2]
            assert topic.seqs(0, max_batch_bytes=3 * size - 1, **fields) == [1, 2]


def test_skipped_records_before_the_refused_one_still_move_the_cursor(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records(
        {"data": "x" * 98},
        {"data": "x" * 98, "node": "own"},
        {"data": "x" * 98, "tag": "gone"},
        {"data": "x" * 98},
    )
    topic.delete(match="gone")
    page = topic.diff(0, max_batch_bytes=150, node="own")
    assert [record["$seq"] for record in page["records"]] == [1]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (3, False, 1)


def test_the_default_budget_and_its_ceiling(new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(10):
        topic.write("x" * (MIB - 2))
    assert topic.seqs(0) == [1]
    assert topic.seqs(0, max_batch_bytes=0) == [1]
    assert topic.seqs(0, max_batch_bytes=2 * MIB) == [1, 2]
    assert topic.seqs(0, max_batch_bytes=2**40) == list(range(1, 9))


def test_a_budget_filled_exactly_by_many_small_records(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(*[1] * 600)
    assert len(topic.seqs(0, limit=1000, max_batch_bytes=500)) == 500
    records, _ = topic.drain(limit=1000, max_batch_bytes=7)
    assert [record["$seq"] for record in records] == list(range(1, 601))
