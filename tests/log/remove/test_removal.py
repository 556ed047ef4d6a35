"""Segments that turn out to be damaged: what they held is announced as lost, wherever it is met."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.log.harness import Lab, three_segments
from tests.support.damage import flip
from topics.log.remove import ledger
from topics.log.remove.removal import lose_runs, stretches_of


def remove(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    flip(path, 60)


def expire_some(lab: Lab) -> None:
    lab.clock.advance(101)


def tighten(lab: Lab) -> None:
    lab.put("t", cap_records=3)


def tighten_bytes(lab: Lab) -> None:
    lab.put("t", cap_bytes=3)


def delete_prefix(lab: Lab) -> None:
    lab.delete("t", before=7)


def delete_tagged(lab: Lab) -> None:
    lab.delete("t", match="x*")


def write_more(lab: Lab) -> None:
    lab.write_each("t", 2)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "act", [expire_some, tighten, tighten_bytes, delete_prefix, delete_tagged, write_more]
)
def test_damage_is_survived_wherever_it_is_met(lab: Lab, index: int, act: Callable[[Lab], None]) -> None:
    three_segments(lab, ttl_ms=100, cap_records=15)
    lab.delete("t", before=9, match="nothing")
    lab.kill()
    spoil(lab.segment_files()[index])
    lab.open()
    act(lab)
    topic = lab.topic("t")
    lab.seqs("t")  # a reader of a damaged segment finds it out
    assert topic.live_count == len(lab.seqs("t")) == sum(run.live_count for run in topic.runs)
    assert topic.live_bytes == sum(run.live_bytes for run in topic.runs)
    assert 1 <= topic.loss_line <= topic.floor <= topic.head + 1
    before = lab.seqs("t"), lab.gaps("t")
    lab.restart()
    assert (lab.seqs("t"), lab.gaps("t")) == before
    assert lab.write("t", "next").first_seq == topic.head + 1


def test_a_damaged_segment_makes_room_under_the_cap_by_itself(lab: Lab) -> None:
    lab.put("t")
    for seq in range(1, 15):
        lab.write("t", {"data": seq, "tag": "gone" if seq in (2, 3, 4, 6) else "stays"})
    lab.delete("t", match="gone")
    for _ in range(3):
        lab.checkpoint()
    lab.kill()
    spoil(lab.segment_files()[1])
    lab.open()
    # Two too many: the search for the second one meets the damage, which costs three.
    lab.put("t", cap_records=8)
    left = [1, *range(9, 15)]
    assert lab.seqs("t") == left
    assert lab.gaps("t") == [(5, 8, "cap")]
    lab.restart()
    assert lab.seqs("t") == left


def test_the_floor_passes_what_was_deleted_once(lab: Lab) -> None:
    lab.write_each("t", 10)
    lab.delete("t", before=3)
    lab.delete("t", seqs=[4, 5, 6])
    lab.delete("t", seqs=[3])
    topic = lab.topic("t")
    assert (topic.floor, list(topic.ledger.ranges())) == (7, [(1, 6, ledger.DELETED)])
    topic.add_hole(11, 12, ledger.LOST)
    lab.write_each("t", 2)
    lab.delete("t", before=12)
    assert (topic.floor, list(topic.ledger.ranges())) == (13, [(1, 10, ledger.DELETED)])


@pytest.mark.parametrize("kind", [ledger.DELETED, ledger.CAP])
def test_a_file_that_goes_with_all_its_records_is_not_read_for_it(lab: Lab, kind: int) -> None:
    """There may be hundreds of them in one request: only which of its records were gone is asked, if that."""
    three_segments(lab)
    lab.delete("t", seqs=[2, 6, 11])
    # Their flags are in the files.
    for _ in range(3):
        lab.checkpoint()
    lab.restart()
    store = lab.engine.store
    before = store.cache_misses
    if kind == ledger.DELETED:
        assert lab.delete("t", before=9) == 6
    else:
        lab.put("t", cap_records=5)
    # The one in which the first live record is.
    assert store.cache_misses == before + 1
    gone = {
        seq
        for first, last, why in lab.topic("t").ledger.ranges()
        if why == ledger.DELETED
        for seq in range(first, last + 1)
    }
    assert gone == ({*range(1, 9)} if kind == ledger.DELETED else {2, 6})
    assert lab.seqs("t") == [9, 10, 12, 13, 14]


def test_seqs_in_a_row_are_one_stretch() -> None:
    seqs = np.array([1, 2, 3, 5, 7, 8])
    assert list(stretches_of(seqs)) == [(1, 3), (5, 5), (7, 8)]
    assert list(stretches_of(seqs[:0])) == []


@pytest.mark.parametrize(("are_known", "told"), [(True, [(6, 6, 1), (8, 8, 1)]), (False, [(5, 8, 2)])])
def test_what_had_been_deleted_before_a_hole_is_told_to_the_layer(
    lab: Lab, are_known: bool, told: list[tuple[int, int, int]]
) -> None:
    """Which records those were, if it is known; otherwise how many."""
    three_segments(lab)
    lab.delete("t", seqs=[6, 8])
    for _ in range(3):
        lab.write("other", 1)
        lab.checkpoint()
    lab.restart()
    topic, heard = lab.topic("t"), list[tuple[int, int, int]]()
    topic.attach(SimpleNamespace(note_deleted=lambda *of: heard.append(of)))
    run, another = topic.runs[1], topic.runs[2]
    if are_known:
        topic.load_marks(run)
    assert (run.dead is not None) is are_known
    lose_runs(topic, [run, another])
    assert heard == told
    assert lab.gaps("t") == [(5, 12, "cap")]
