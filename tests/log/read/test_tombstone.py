"""Which readers are told of a gap, and what exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.log.harness import Lab, gap, seqs
from topics.log.read.tombstone import Tombstone, _gap_reason, passed_over
from topics.log.remove import ledger
from topics.log.topic import Topic


def test_a_gap_is_cut_where_a_range_ends_and_joined_with_what_follows() -> None:
    gap = Tombstone(3, 8, "cap", 6, 9, 20)
    assert gap.within(8) == gap.within(9) == gap
    assert gap.within(5) == Tombstone(3, 5, "cap", 3, 9, 20)
    assert gap.joined(None) == gap
    assert gap.joined(Tombstone(12, 13, "cap", 2, 14, 21)) == Tombstone(3, 13, "cap", 8, 14, 21)
    assert gap.joined(Tombstone(12, 13, "ttl", 2, 14, 21)).reason == "mixed"


def test_a_gap_ends_at_the_floor_not_at_the_loss_line(lab: Lab) -> None:
    lab.put("t", cap_records=6)
    lab.write_each("t", 9)
    lab.delete("t", before=7)
    page = lab.diff("t")
    assert gap(page) == (1, 6, "cap")
    assert page.tombstone is not None
    assert page.tombstone.earliest_seq == 7
    page = lab.diff("t", 3)
    assert page.tombstone is None
    assert seqs(page) == [7, 8, 9]


@pytest.mark.parametrize("fate", ["expired", "deleted"])
def test_an_empty_topic_is_caught_up_and_only_age_is_announced(lab: Lab, fate: str) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 7)
    if fate == "expired":
        lab.clock.advance(101)
    else:
        lab.delete("t", before=1000)
    page = lab.diff("t")
    assert page.rows == b""
    assert (page.next_from_seq, page.caught_up, page.lag, page.earliest_seq) == (7, True, 0, 8)
    if fate == "expired":
        assert gap(page) == (1, 7, "ttl")
    else:
        assert page.tombstone is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ({"ttl_hi": 5}, "ttl"),
        ({"cap_hi": 5}, "cap"),
        ({"ttl_hi": 5, "cap_hi": 5}, "mixed"),
        ({"ttl_hi": 5, "cap_hi": 4}, "ttl"),
        ({"ttl_hi": 4, "cap_hi": 5}, "cap"),
        ({"trim_hi": 5}, "source_trim"),
        ({"trim_hi": 5, "lost_hi": 4, "cap_hi": 4, "ttl_hi": 4}, "source_trim"),
        ({"trim_hi": 5, "lost_hi": 5}, "cap"),
        ({"trim_hi": 4, "lost_hi": 5}, "cap"),
    ],
    ids=str,
)
def test_a_reason_counts_down_to_the_last_seq_of_its_line(lines: dict[str, int], reason: str) -> None:
    topic = SimpleNamespace(**{"ttl_hi": 0, "cap_hi": 0, "trim_hi": 0, "lost_hi": 0} | lines)
    assert _gap_reason(cast(Topic, topic), 5) == reason


def test_a_hole_is_announced_to_those_who_stand_before_it(lab: Lab) -> None:
    lab.write_each("t", 2)
    lab.topic("t").add_hole(3, 4, ledger.CAP)
    lab.write_each("t", 1)
    assert seqs(lab.diff("t", 1)) == [2]
    page = lab.diff("t", 2)
    assert (gap(page), seqs(page)) == ((3, 4, "cap"), [5])
    assert gap(lab.diff("t", 3)) == (4, 4, "cap")
    assert lab.diff("t", 4).tombstone is None


def test_what_a_reader_passes_over_is_told_as_one_gap(lab: Lab) -> None:
    lab.put("t", cap_records=8)
    lab.write_each("t", 10)
    topic = lab.topic("t")
    topic.add_hole(11, 12, ledger.TRIM)
    lab.write_each("t", 1)
    topic.add_hole(14, 14, ledger.TRIM)
    lab.write_each("t", 2)

    def told(from_seq: int, position: int) -> tuple[int, int, str, int] | None:
        found = passed_over(topic, from_seq, position)
        return None if found is None else (found.gap_from, found.gap_to, found.reason, found.missed_estimate)

    floor = topic.floor
    assert told(floor - 1, 10) is None
    assert told(10, 10) is None
    assert told(0, floor - 1) == (1, floor - 1, "cap", floor - 1)
    assert told(0, 13) == (1, 12, "mixed", floor - 1 + 2)
    assert told(10, 13) == (11, 12, "source_trim", 2)
    assert told(11, 16) == (12, 14, "source_trim", 2)
    assert told(14, 16) is None
