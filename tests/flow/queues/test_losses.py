"""Queues tell their workers which jobs were lost: exactly those, at least once, across restarts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.flow.queues.lab import QueueLab, Told, fill, unexpected
from tests.support.appending import append
from tests.support.damage import flip
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.losses import Losses, LossState, SeqRanges
from topics.flow.queues.queue import Settlement, Verb
from topics.log.remove.ledger import LOST


def told(lab: QueueLab, wanted: int = 1) -> Told | None:
    lab.claim(wanted)
    return lab.told


def test_a_set_of_seqs_is_the_same_in_ranges() -> None:
    dice = random.Random(7)
    for _ in range(200):
        ranges, plain = SeqRanges(), set[int]()
        for _ in range(dice.randrange(6)):
            first = dice.randrange(1, 20)
            last = first + dice.randrange(-1, 4)
            ranges.add(first, last)
            plain.update(range(first, last + 1))
        assert [seq for seq in range(30) if seq in ranges] == sorted(plain)
        assert [seq for first, last in ranges for seq in range(first, last + 1)] == sorted(plain)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))
        begin, end = sorted(dice.choices(range(25), k=2))
        asked = set(range(begin, end + 1))
        for found, expected in ((ranges.inside, asked & plain), (ranges.outside, asked - plain)):
            assert [s for a, b in found(begin, end) for s in range(a, b + 1)] == sorted(expected)


def test_an_empty_range_is_none() -> None:
    assert not [*SeqRanges([(5, 4)])]


def test_a_hole_is_lost_to_both_its_ends_and_settled_once(lab: QueueLab) -> None:
    fill(lab, 3)
    lab.topic("q").add_hole(4, 6, LOST, found_ms=1)
    losses = Losses(lab.topic("q"))
    assert [seq for seq in range(1, 9) if losses.is_lost(seq)] == [4, 5, 6]
    assert [losses.settle(), losses.settle()] == [True, False]


@pytest.mark.parametrize(
    ("head", "told", "holes"), [(3, 3, []), (4, 4, [(4, 4)]), (5, 4, [(4, 5)]), (9, 4, [(4, 6)])]
)
def test_what_was_told_of_seqs_that_were_taken_back_is_not_kept(
    lab: QueueLab, head: int, told: int, holes: list[tuple[int, int]]
) -> None:
    """They will be given out again."""
    fill(lab, head)
    losses = Losses(lab.topic("q"))
    losses.load(LossState(lab.topic("q").id, 4, [(4, 6)], 4, [], []))
    state = losses.dump()
    assert (state.told, state.settled, state.told_holes) == (told, told, holes)


def test_what_is_settled_stands_in_the_state_alone(lab: QueueLab) -> None:
    losses = Losses(lab.topic("q"))
    for first in (5, 6):
        losses.note_finished(first, first + 2, 1)
    losses.load(LossState(lab.topic("q").id, 0, [], 5, [], [(1, 3, 2)]))
    assert losses.dump().partly_finished == [(1, 3, 2), (6, 8, 1)]


def test_a_cap_takes_jobs_that_were_not_finished(lab: QueueLab) -> None:
    lab.put("q", cap_records=4)
    fill(lab, 4)
    lab.claim(3)
    lab.ack(1, 3)
    fill(lab, 4)
    # 2 and 4 were evicted to make room; 1 and 3 are done.
    assert told(lab) == (2, 4, 2, "cap")
    assert told(lab) is None


def offered(lab: QueueLab) -> Claim:
    """A claim that was served; its worker has not read the answer yet."""
    answers: list[Claim] = []
    lab.queue().serve([Claim("w", 1, 1000, answers.append, unexpected)])
    lab.engine.queue.sync_now()
    return answers[0]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
def test_what_was_told_is_not_told_again_and_the_rest_is(lab: QueueLab, clean: bool, sealed: bool) -> None:
    lab.put("q", cap_records=2)
    fill(lab, 4)
    lab.claim(1)
    assert lab.told == (1, 2, 2, "cap")
    fill(lab, 3)
    if sealed:
        lab.checkpoint(everything=True)
    lab.restart(clean=clean)
    assert told(lab) == (3, 5, 3, "cap")
    lab.restart(clean=clean)
    assert told(lab) is None


def test_a_process_that_dies_before_it_says_so_tells_again(lab: QueueLab) -> None:
    lab.put("q", cap_records=1)
    fill(lab, 2)
    assert told(lab) == (1, 1, 1, "cap")
    fill(lab, 1)
    assert offered(lab).notice is not None
    lab.checkpoint()
    lab.restart()
    assert told(lab) == (2, 2, 1, "cap")


# --- holes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_restart_of_an_ephemeral_queue_takes_all_but_the_finished(
    lab: QueueLab, clean: bool, sealed: bool
) -> None:
    lab.put("q", durability="ephemeral")
    fill(lab, 6)
    lab.claim(5)
    lab.ack(1, 2, 4)
    if sealed:
        lab.checkpoint()
    lab.restart(clean=clean)
    assert (lab.ack(1, 3), lab.lost) == ((0, [1]), [3])
    assert told(lab) == (3, 6, 3, "cap")
    lab.restart(clean=clean)
    assert told(lab) is None


def test_a_delete_after_the_loss_does_not_hide_it(lab: QueueLab) -> None:
    lab.put("q", durability="ephemeral")
    fill(lab, 3)
    lab.restart()
    lab.delete("q", before=4)
    lab.restart()
    assert told(lab) == (1, 3, 3, "cap")


def sealed_jobs(lab: QueueLab) -> None:
    """Segments of four: 1 to 4, of which 1 and 3 are done, 5 to 8 without 6, and 9 to 12."""
    lab.write_each("q", 12)
    lab.claim(6)
    lab.ack(1, 3, 6)
    for _ in range(3):
        lab.write("other", "more")
        lab.checkpoint(everything=True)


def test_a_rotten_segment_takes_only_what_was_not_finished(lab: QueueLab) -> None:
    """Which of its jobs were done is lost with it; how many is not."""
    sealed_jobs(lab)
    lab.stop()
    flip(lab.segment_files()[1], 40)
    lab.open()
    assert [job["$seq"] for job in lab.claim(20)] == [2, 4, 9, 10, 11, 12]
    assert lab.told == (5, 8, 3, "cap")
    lab.restart()
    assert told(lab) is None


def test_several_stretches_are_told_as_one_and_counted_as_they_are(lab: QueueLab) -> None:
    """The front goes by a cap, and a segment inside the log by rot."""
    sealed_jobs(lab)
    lab.stop()
    flip(lab.segment_files()[1], 40)
    lab.open()
    assert lab.seqs("q") == [2, 4, 9, 10, 11, 12]
    lab.put("q", cap_records=5)
    assert [job["$seq"] for job in lab.claim(20)] == [4, 9, 10, 11, 12]
    assert lab.told == (2, 8, 4, "cap")
    # What lies between the two stretches can still be lost, and is told then.
    lab.put("q", cap_records=4)
    lab.restart()
    assert told(lab) == (4, 4, 1, "cap")
    lab.restart()
    assert told(lab) is None


# --- jobs named by a worker ---------------------------------------------------------------------------------


def test_lost_jobs_are_named_apart_in_every_answer(lab: QueueLab) -> None:
    lab.put("q", cap_records=3)
    fill(lab, 3)
    lab.claim(3)
    lab.ack(2)
    fill(lab, 3)
    assert (lab.ack(1, 2, 3, 4, 99), lab.lost) == ((0, [2, 4, 99]), [1, 3])
    assert (lab.nack(1, 2), lab.lost) == ((0, [2]), [1])
    assert (lab.extend(1, 2), lab.lost) == (({}, [2]), [1])


def test_a_job_that_is_lost_while_its_acknowledgement_is_on_its_way(lab: QueueLab) -> None:
    lab.put("q", cap_records=2)
    fill(lab, 2)
    lab.claim(2)
    answers: list[Settlement] = []
    queue = lab.queue()
    append(lab.engine, "q", b'{"records":[{"data":3}]}', lambda _: None, unexpected)
    queue.settle(Settlement(Verb.ACK, "w", [(1, None), (2, None)], answers.append, unexpected))
    lab.engine.queue.sync_now()
    assert [(ack.seqs, ack.skipped, ack.lost) for ack in answers] == [([2], [], [1])]
    assert told(lab) == (1, 1, 1, "cap")
