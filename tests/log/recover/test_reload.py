"""Below the snapshot: record data that only the journal has is brought back, or announced as lost."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab, check_loss


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
