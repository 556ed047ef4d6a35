"""Above the snapshot: frames take effect again, exactly as they did the first time."""

from __future__ import annotations

import pytest

from tests.flow.queues.lab import unexpected
from tests.log.harness import T0, Lab, check_loss, gap
from tests.support.appending import append, body_of
from tests.support.damage import flip
from topics.core.config import TopicConfig
from topics.log.lifecycle import put_topic
from topics.log.recover.lost_frames import LostFrames
from topics.log.recover.replay import JournalReplay
from topics.storage.frame import Frame, Kind
from topics.storage.journal_reader import read_frame


def test_other_topics_are_not_disturbed_by_a_lossless_restart(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        lab.write_each(name, 5)
    before = lab.states()
    for clean in (False, True, False):
        lab.restart(clean=clean)
        assert lab.states() == before


def test_without_any_snapshot_a_complete_journal_is_enough(lab: Lab) -> None:
    lab.write_each("t", 5, tag="x")
    lab.checkpoint()
    lab.delete("t", match="x")
    lab.write_each("t", 1)
    before = lab.states()
    lab.kill()
    for snapshot in lab.snapshot_files():
        flip(snapshot, 40)
    lab.open()
    assert lab.states() == before


def test_age_shown_before_a_restart_is_shown_after_it(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl")
    lab.clock.advance(-101)
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


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


def test_ephemeral_records_that_grow_old_unseen_cost_no_frame(lab: Lab) -> None:
    lab.put("t", durability="ephemeral", ttl_ms=1000)
    for _ in range(5):
        lab.write("t", 1)
        lab.clock.advance(1001)
    assert all(frame.kind != Kind.LINES for frame in lab.frames())
    for _ in range(3):
        assert lab.gaps("t") == [(1, 5, "ttl")]
    assert sum(frame.kind == Kind.LINES for frame in lab.frames()) == 1


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


def test_records_around_an_ephemeral_stretch_survive(lab: Lab) -> None:
    lab.write_each("t", 2)
    lab.put("t", durability="ephemeral")
    lab.write_each("t", 3)
    lab.put("t", durability="fsync")
    lab.write_each("t", 2)
    assert lab.seqs("t") == [1, 2, 3, 4, 5, 6, 7]
    lab.restart()
    assert lab.seqs("t") == [1, 2, 6, 7]
    assert lab.gaps("t") == [(3, 5, "cap")]
    check_loss(lab, "t", acked=7)


def test_what_is_whole_is_not_counted_as_damage(lab: Lab) -> None:
    lab.put("t", cap_records=100)
    lab.write_each("t", 3)
    lab.write("t", *range(5))
    lab.restart()
    assert lab.engine.totals.damage == 0
    assert lab.seqs("t") == list(range(1, 9))


def test_a_name_that_was_used_before_is_known_to_have_been(lab: Lab) -> None:
    for name in ("once", "again"):
        lab.put(name)
    lab.drop("again")
    lab.put("again")
    for _ in range(2):
        assert (lab.topic("once").first_life, lab.topic("again").first_life) == (True, False)
        lab.restart()


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


def heads(kind: Kind, topic_id: int, seq: int = 1) -> Frame:
    return Frame(kind, 0, 1, topic_id, seq, 0, 0, position=0, payload=memoryview(b""))


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


def test_a_topic_that_was_dropped_is_not_brought_back_by_a_frame(lab: Lab) -> None:
    replay = read_again(lab, 50)
    replay.take(heads(Kind.ADVANCE, 49))
    assert 49 not in lab.engine.by_id, "the snapshot knew that it was gone"
    replay.take(heads(Kind.ADVANCE, 50))
    assert lab.topic("recovered-50").head == 1
    replay.take(heads(Kind.DROP, 50))
    replay.take(heads(Kind.ADVANCE, 50, 2))
    assert 50 not in lab.engine.by_id
    replay.take(heads(Kind.RESERVE, 51))
    assert 51 not in lab.engine.by_id, "it had no record yet"
