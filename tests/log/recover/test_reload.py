"""Below the snapshot: record data that only the journal has is brought back, or announced as lost."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab, check_loss
from tests.support.damage import cut
from topics.storage.fileheader import FILE_HEADER_BYTES


def test_a_cut_below_the_snapshot(lab: Lab) -> None:
    """The snapshot knows more than the journal still has: unsealed records are gone, sealed ones are not."""
    lab.write_each("t", 6)
    lab.checkpoint()
    lab.kill()
    (journal,) = lab.journal_files()
    cut(journal, FILE_HEADER_BYTES)
    lab.open()
    assert lab.seqs("t") == [1, 2, 3, 4], "the full run is in a segment"
    assert lab.gaps("t") == [(5, 6, "cap")]
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
