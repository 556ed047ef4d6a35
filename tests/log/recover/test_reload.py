"""Below the snapshot: record data that only the journal has is brought back, or announced as lost."""

from __future__ import annotations

import pytest

from tests.log.harness import T0, Lab, check_loss
from tests.support.damage import cut
from topics.storage.fileheader import FILE_HEADER_BYTES


def test_a_cut_below_the_snapshot(lab: Lab) -> None:
    """The snapshot knows more than the journal still has: unsealed records are gone, sealed ones are not."""
    lab.write_each("t", 6)
    lab.checkpoint()
    lab.kill()
    (journal,) = lab.journal_files()
    cut(journal, FILE_HEADER_BYTES)
    lab.clock.advance(60_000)
    lab.open()
    assert lab.seqs("t") == [1, 2, 3, 4], "the full run is in a segment"
    assert lab.gaps("t") == [(5, 6, "cap")]
    times = lab.topic("t").gone_times
    assert times is not None
    assert times.between(5, 6) == (0, T0 + 60_000), "when it was found"
    check_loss(lab, "t", acked=6)


def test_a_journal_that_is_missing_below_the_snapshot(lab: Lab) -> None:
    """What was written on top of such a start is as safe as ever, even before the next checkpoint."""
    lab.write_each("t", 6)
    lab.checkpoint()
    lab.kill()
    for journal in lab.journal_files():
        journal.unlink()
    lab.open()
    assert lab.gaps("t") == [(5, 6, "cap")]
    assert lab.write("t", "next").first_seq == 7
    check_loss(lab, "t", acked=7)
    assert lab.seqs("t") == [1, 2, 3, 4, 7, 8]


@pytest.mark.parametrize("clean", [False, True])
def test_ephemeral_records_that_are_gone_are_not_called_damage(lab: Lab, clean: bool) -> None:
    lab.put("t", durability="ephemeral")
    lab.write_each("t", 3)
    lab.checkpoint()
    lab.restart(clean=clean)
    assert lab.gaps("t") == [(1, 3, "cap")]
    assert lab.engine.totals.damage == 0


def test_the_first_and_the_last_record_of_a_run_stay_deleted(lab: Lab) -> None:
    lab.write_each("t", 7)
    lab.checkpoint()
    lab.delete("t", seqs=[5, 7])
    lab.checkpoint()
    assert [run.base for run in lab.topic("t").runs if run.hot is not None] == [5]
    for _ in range(2):
        lab.restart()
        assert lab.seqs("t") == [1, 2, 3, 4, 6]


def test_frames_of_a_topic_that_is_gone_are_passed_over(lab: Lab) -> None:
    """One that is still needed lies in front of them; some come alone, and some are read together."""
    lab.write_each("kept", 1)
    lab.write_each("gone", 1)
    lab.write_each("kept", 1)
    lab.write_each("gone", 3)
    lab.drop("gone")
    lab.checkpoint()
    lab.restart()
    assert list(lab.engine.names_after("", "")) == ["kept"]
    assert lab.seqs("kept") == [1, 2]


def test_what_was_in_one_run_is_in_one_again(lab: Lab) -> None:
    for _ in range(3):
        for name in ("a", "b"):
            lab.write_each(name, 1)
    lab.checkpoint()
    lab.restart()
    assert [[(run.base, run.last) for run in lab.topic(name).runs] for name in ("a", "b")] == [[(1, 3)]] * 2
