"""When writes are off: what still goes on, and what is said of it."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from topics.core.errors import ApiError, WritesOff


def test_routers_forward_as_long_as_more_than_half_of_the_reserve_is_there(lab: Lab) -> None:
    """Or as nothing is wrong, with or without a reserve."""
    queue, reserve = lab.engine.queue, lab.engine.reserve
    assert (reserve.size, reserve.half) == (0, 0)
    assert queue.refusals.may_forward
    queue.refusals.note_full()
    assert not queue.refusals.may_forward
    reserve.make(16 * 4096)
    assert reserve.size == 16 * 4096
    assert queue.refusals.may_forward
    reserve.size = reserve.half
    assert not queue.refusals.may_forward
    reserve.size += 1
    assert queue.refusals.may_forward
    queue.refusals.resume()
    assert queue.refusals.off is None
    queue.give_up(OSError("the disk is gone"))
    assert not queue.refusals.may_forward


def test_a_full_disk_is_told_once_and_is_over_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    queue = lab.engine.queue
    queue.refusals.resume()
    for _ in range(2):
        queue.refusals.note_full()
    assert queue.refusals.off is WritesOff.DISK_FULL
    with pytest.raises(ApiError) as refusal:
        lab.write("t", 1)
    assert refusal.value.code == "disk_full"
    for _ in range(2):
        queue.refusals.resume()
    assert lab.write("t", 1).first_seq == 1
    told = [record.getMessage() for record in caplog.records if "disk" in record.getMessage()]
    assert [message.partition(":")[0] for message in told] == [
        "the disk is full",
        "there is room on the disk again",
    ]


def test_without_a_reserve_not_even_removals_are_taken_until_there_may_be_room(lab: Lab) -> None:
    lab.write("t", 1, 2)
    queue = lab.engine.queue
    queue.refusals.note_full()
    assert lab.delete("t", before=2) == 1, "it makes the log smaller"
    queue.refusals.is_stuck = True
    with pytest.raises(ApiError) as refusal:
        lab.delete("t", before=3)
    assert refusal.value.code == "disk_full"
    queue.refusals.try_again()
    assert lab.delete("t", before=3) == 1


def test_the_first_final_reason_is_the_one_that_is_told(lab: Lab) -> None:
    queue = lab.engine.queue
    queue.refusals.end(WritesOff.DIRECTORY_REPLACED, "the directory is another one")
    for later in (
        lambda: queue.refusals.end(WritesOff.STORAGE_FAILED, "later"),
        queue.refusals.note_full,
        queue.refusals.resume,
    ):
        later()
        assert queue.refusals.off is WritesOff.DIRECTORY_REPLACED
        with pytest.raises(ApiError, match="the directory is another one; writes are off until restart"):
            lab.write("t", 1)
