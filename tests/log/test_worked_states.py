"""Small histories and the exact lines and answers they lead to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import T0, Lab, gap, seqs

Gap = tuple[int, int, str]


@pytest.fixture(params=["memory", "sealed", "restarted"])
def lab(request: pytest.FixtureRequest, make_lab: Callable[..., Lab]) -> Lab:
    """The same answers whether records are in memory, in segments, or come back after a kill."""
    lab = make_lab(segment_max_events=3)
    lab.seen_as = request.param  # type: ignore[attr-defined]
    return lab


def observe(lab: Lab) -> None:
    how = lab.seen_as  # type: ignore[attr-defined]
    if how == "sealed":
        lab.checkpoint(everything=True)
    if how == "restarted":
        lab.restart()


def check_diff(lab: Lab, from_seq: int, expected: list[int], announced: Gap | None = None) -> None:
    """One read that must reach the head."""
    page = lab.diff("t", from_seq)
    assert seqs(page) == expected
    assert (None if page.tombstone is None else gap(page)) == announced
    if page.tombstone is not None:
        assert page.tombstone.missed_estimate == page.tombstone.gap_to - page.tombstone.gap_from + 1
        assert page.tombstone.earliest_seq == page.earliest_seq
        assert page.tombstone.head_seq == page.head_seq
    assert page.next_from_seq == page.head_seq
    assert page.caught_up
    assert page.lag == 0


def test_01_nothing(lab: Lab) -> None:
    lab.put("t")
    observe(lab)
    assert lab.lines("t") == (0, 1, 1)
    check_diff(lab, 0, [])


def test_02_five_writes(lab: Lab) -> None:
    lab.write_each("t", 5)
    observe(lab)
    assert lab.lines("t") == (5, 1, 1)
    check_diff(lab, 5, [])
    check_diff(lab, 0, [1, 2, 3, 4, 5])


def test_03_a_cap_evicts(lab: Lab) -> None:
    lab.put("t", cap_records=4)
    lab.write_each("t", 9)
    observe(lab)
    assert lab.lines("t") == (9, 6, 6)
    check_diff(lab, 0, [6, 7, 8, 9], (1, 5, "cap"))
    check_diff(lab, 4, [6, 7, 8, 9], (5, 5, "cap"))
    check_diff(lab, 5, [6, 7, 8, 9])


def test_04_a_prefix_is_deleted(lab: Lab) -> None:
    lab.write_each("t", 6)
    assert lab.delete("t", before=4) == 3
    observe(lab)
    assert lab.lines("t") == (6, 4, 1)
    check_diff(lab, 0, [4, 5, 6])


def test_05_deleted_records_leave_room_under_the_cap(lab: Lab) -> None:
    lab.put("t", cap_records=5)
    lab.write_each("t", 5)
    lab.delete("t", before=3)
    lab.write_each("t", 2)
    observe(lab)
    assert lab.lines("t") == (7, 3, 1)
    check_diff(lab, 0, [3, 4, 5, 6, 7])


def test_06_the_first_eviction_after_a_delete(lab: Lab) -> None:
    lab.put("t", cap_records=5)
    lab.write_each("t", 5)
    lab.delete("t", before=3)
    lab.write_each("t", 3)
    observe(lab)
    assert lab.lines("t") == (8, 4, 4)
    check_diff(lab, 0, [4, 5, 6, 7, 8], (1, 3, "cap"))
    check_diff(lab, 2, [4, 5, 6, 7, 8], (3, 3, "cap"))
    check_diff(lab, 3, [4, 5, 6, 7, 8])


def test_07_a_delete_behind_the_loss_line_extends_the_gap(lab: Lab) -> None:
    lab.put("t", cap_records=6)
    lab.write_each("t", 9)
    lab.delete("t", before=7)
    observe(lab)
    assert lab.lines("t") == (9, 7, 4)
    check_diff(lab, 0, [7, 8, 9], (1, 6, "cap"))
    check_diff(lab, 2, [7, 8, 9], (3, 6, "cap"))
    check_diff(lab, 3, [7, 8, 9])


def test_08_age_is_strict(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    lab.write_each("t", 2)
    lab.clock.advance(800)
    lab.write_each("t", 1)
    lab.clock.set(T0 + 1000)
    observe(lab)
    assert lab.lines("t") == (3, 1, 1)
    lab.clock.set(T0 + 1001)
    assert lab.lines("t") == (3, 3, 3)
    check_diff(lab, 0, [3], (1, 2, "ttl"))


def test_09_everything_has_expired(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    lab.write_each("t", 7)
    lab.clock.advance(1_000_000)
    observe(lab)
    assert lab.lines("t") == (7, 8, 8)
    check_diff(lab, 0, [], (1, 7, "ttl"))
    check_diff(lab, 6, [], (7, 7, "ttl"))
    check_diff(lab, 7, [])


def test_10_everything_was_deleted(lab: Lab) -> None:
    lab.write_each("t", 7)
    assert lab.delete("t", before=8) == 7
    observe(lab)
    assert lab.lines("t") == (7, 8, 1)
    check_diff(lab, 0, [])


def test_11_cap_and_age_together(lab: Lab) -> None:
    lab.put("t", cap_records=3, ttl_ms=1000)
    lab.write_each("t", 5)
    lab.clock.advance(5000)
    observe(lab)
    assert lab.lines("t") == (5, 6, 6)
    check_diff(lab, 0, [], (1, 5, "mixed"))
    check_diff(lab, 2, [], (3, 5, "ttl"))


def test_12_a_deleted_record_that_ages_changes_nothing(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    lab.write_each("t", 1)
    lab.write("t", {"data": 2, "tag": "second"})
    lab.delete("t", match="second")
    lab.clock.advance(1001)
    lab.write_each("t", 1)
    observe(lab)
    assert lab.lines("t") == (3, 3, 2)
    check_diff(lab, 0, [3], (1, 2, "ttl"))
    check_diff(lab, 1, [3])


def write_tagged(lab: Lab, count: int) -> None:
    for seq in range(1, count + 1):
        lab.write("t", {"data": seq, "tag": f"seq-{seq}"})


def test_13_deletes_in_the_middle(lab: Lab) -> None:
    write_tagged(lab, 5)
    lab.delete("t", match="seq-1")
    lab.delete("t", match="seq-3")
    observe(lab)
    assert lab.lines("t") == (5, 2, 1)
    check_diff(lab, 0, [2, 4, 5])


def test_14_the_floor_jumps_over_an_older_hole(lab: Lab) -> None:
    write_tagged(lab, 5)
    for tag in ("seq-1", "seq-3", "seq-2"):
        lab.delete("t", match=tag)
    observe(lab)
    assert lab.lines("t") == (5, 4, 1)
    check_diff(lab, 0, [4, 5])


def test_15_a_dead_slot_is_not_an_eviction(lab: Lab) -> None:
    lab.put("t", cap_records=3)
    write_tagged(lab, 3)
    lab.delete("t", match="seq-1")
    lab.write_each("t", 1)
    observe(lab)
    assert lab.lines("t") == (4, 2, 1)
    check_diff(lab, 0, [2, 3, 4])


def test_16_a_record_larger_than_the_cap(lab: Lab) -> None:
    lab.put("t", cap_bytes=3)
    op = lab.write("t", "more than three bytes")
    assert (op.first_seq, op.last_seq) == (1, 1)
    observe(lab)
    assert lab.lines("t") == (1, 2, 2)
    check_diff(lab, 0, [], (1, 1, "cap"))
