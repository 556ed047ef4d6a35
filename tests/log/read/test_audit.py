"""The account of missing seqs says for each one why it is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.log.harness import Lab
from tests.support.damage import flip
from topics.log.read.audit import missing_ranges
from topics.log.remove import ledger


def told(lab: Lab, name: str = "a") -> list[tuple[int, int, str]]:
    lab.engine.refresh(lab.topic(name))
    return [(first, last, ledger.KIND_NAMES[kind]) for first, last, kind in missing_ranges(lab.topic(name))]


def test_a_topic_that_lost_nothing_has_nothing_to_tell(lab: Lab) -> None:
    lab.write_each("a", 5)
    assert told(lab) == []


@pytest.mark.parametrize("sealed", [False, True])
def test_deletions_above_the_floor_are_told(lab: Lab, sealed: bool) -> None:
    for tag in "xxyyxxyxyy":
        lab.write("a", {"data": 0, "tag": tag})
    if sealed:
        lab.checkpoint(everything=True)
    lab.delete("a", match="y")
    expected = [(3, 4, "deleted"), (7, 7, "deleted"), (9, 10, "deleted")]
    assert told(lab) == expected
    lab.checkpoint(everything=True)
    lab.checkpoint()
    lab.restart()
    assert told(lab) == expected


def test_a_run_without_a_live_record_is_told(lab: Lab) -> None:
    lab.write_each("a", 4)
    for _ in range(4):
        lab.write("a", {"data": 0, "tag": "y"})
    lab.write_each("a", 4)
    lab.checkpoint(everything=True)
    lab.delete("a", match="y")
    assert told(lab) == [(5, 8, "deleted")]


def test_caps_and_ttl_and_deletes_are_told_apart_below_the_floor(lab: Lab) -> None:
    lab.put("a", cap_records=6, ttl_ms=1000)
    for index in range(8):
        lab.write("a", {"data": 0, "tag": "y" if index == 3 else "x"})
    lab.delete("a", match="y")
    lab.clock.advance(1001)
    lab.write("a", 0)
    assert told(lab) == [(1, 2, "cap"), (3, 3, "ttl"), (4, 4, "deleted"), (5, 8, "ttl")]


def test_holes_are_told_as_lost(lab: Lab) -> None:
    lab.write_each("a", 12)
    lab.checkpoint(everything=True)
    lab.engine.store.close()
    flip(lab.segment_files()[1], 40)
    assert lab.seqs("a") == [1, 2, 3, 4, 9, 10, 11, 12]
    assert told(lab) == [(5, 8, "lost")]
    lab.delete("a", before=11)
    assert told(lab) == [(1, 4, "deleted"), (5, 8, "lost"), (9, 10, "deleted")]


@pytest.mark.parametrize("seed", range(10))
def test_every_seq_is_readable_or_accounted_for(make_lab: Callable[..., Lab], seed: int) -> None:
    rng = random.Random(seed)
    lab = make_lab(segment_max_events=3)
    lab.put("a", cap_records=rng.choice([0, 9]), ttl_ms=rng.choice([0, 300]))
    for _ in range(60):
        roll = rng.random()
        if roll < 0.5:
            lab.write("a", *({"data": 0, "tag": rng.choice("xyz")} for _ in range(rng.randrange(1, 4))))
        elif roll < 0.65:
            lab.delete("a", match=rng.choice("xyz"))
        elif roll < 0.75:
            lab.delete("a", before=lab.topic("a").floor + rng.randrange(3))
        elif roll < 0.85:
            lab.clock.advance(rng.choice([50, 200]))
        elif roll < 0.95:
            lab.checkpoint(everything=rng.random() < 0.5)
        else:
            lab.restart()
        ranges = told(lab)
        missing = [seq for first, last, _ in ranges for seq in range(first, last + 1)]
        readable = lab.seqs("a")
        assert sorted([*missing, *readable]) == list(range(1, lab.topic("a").head + 1))
        assert all(a[1] + 1 < b[0] or a[2] != b[2] for a, b in pairwise(ranges))
