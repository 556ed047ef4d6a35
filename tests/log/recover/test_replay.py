"""Above the snapshot: frames take effect again, exactly as they did the first time."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import unexpected
from tests.log.harness import T0, Lab, check_loss, gap
from tests.support.appending import append, body_of
from topics.core.config import TopicConfig
from topics.log.lifecycle import put_topic
from topics.log.recover.lost_frames import LostFrames
from topics.log.recover.replay import JournalReplay
from topics.storage.frame import Kind
from topics.storage.journal_reader import read_frame


@pytest.mark.parametrize("clean", [False, True])
def test_what_age_has_taken_of_ephemeral_records_stays_its_doing(lab: Lab, clean: bool) -> None:
    """No frame holds them, so replay does not see them grow old: it has to be told."""
    lab.put("t", durability="ephemeral", ttl_ms=1000)
    lab.write_each("t", 3)
    lab.clock.advance(1001)
    assert lab.gaps("t") == [(1, 3, "ttl")]
    lab.restart(clean=clean)
    assert lab.gaps("t") == [(1, 3, "ttl")]
    lab.write_each("t", 2)
    lab.restart(clean=clean)
    assert gap(lab.diff("t", 3)) == (4, 5, "cap")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_ephemeral_topic_keeps_its_head_and_says_what_it_lost(
    lab: Lab, clean: bool, checkpointed: bool
) -> None:
    lab.put("t", durability="ephemeral", cap_records=10)
    lab.write_each("t", 7)
    if checkpointed:
        lab.checkpoint(everything=True)
        lab.write_each("t", 1)
    head = lab.topic("t").head
    lab.restart(clean=clean)
    assert lab.topic("t").config.durability == "ephemeral"
    assert lab.lines("t") == (head, head + 1, head + 1)
    page = lab.diff("t")
    assert gap(page) == (1, head, "cap")
    assert (page.next_from_seq, page.caught_up) == (head, True)
    check_loss(lab, "t", acked=head)


def test_a_write_behind_a_change_to_ephemeral_was_not_ephemeral(lab: Lab) -> None:
    """It was submitted while the change waited for the disk; in the journal it comes behind it."""
    lab.put("t", durability="disk")
    engine, config = lab.engine, TopicConfig(durability="ephemeral")
    put_topic(engine, "t", config, lambda _: None, unexpected)
    append(engine, "t", body_of(1), lambda _: None, unexpected)
    engine.queue.sync_now()
    for _ in range(3):
        lab.restart()
        assert lab.seqs("t") == [1]
        # Its frame goes with the journal; a segment has to have it by then.
        lab.write("other", 1)
        lab.checkpoint(everything=True)
    assert lab.seqs("t") == [1]


@pytest.mark.parametrize("ahead_ms", [-5000, 0])
def test_time_goes_on_from_the_last_frame_on_another_boot(lab: Lab, ahead_ms: int) -> None:
    lab.clock.advance(5000)
    lab.write("t", 1)
    lab.kill()
    lab.disk.boot = b"boot-2"
    lab.clock.advance(ahead_ms)
    lab.open()
    assert lab.engine.now() == T0 + 5000


# --- by itself ----------------------------------------------------------------------------------------------


def read_again(lab: Lab, next_topic_id: int = 1) -> JournalReplay:
    return JournalReplay(lab.engine, {}, LostFrames(lab.engine, 0), next_topic_id)


def test_records_that_are_there_are_not_taken_twice(lab: Lab) -> None:
    lab.write("t", 1, 2, 3)
    lab.write("t", 4)
    before = lab.state("t")
    replay = read_again(lab)
    for place in lab.frames():
        found, _ = read_frame(memoryview(place.path.read_bytes()), place.offset, 0)
        if found is not None and found.kind == Kind.APPEND:
            replay.take(found)
    assert lab.state("t") == before
    assert lab.engine.totals.damage == 0
