"""Snapshots: what is looked at for them, and when a delete flag may be flipped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.log.harness import Lab
from topics.core.config import TopicConfig
from topics.log.lifecycle import put_topic
from topics.log.seal import checkpoint
from topics.storage.segment import DEAD


def test_capturing_stops_in_between_and_goes_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "STEP_S", 0.0)
    lab.write("a", 1)
    assert lab.checkpointer.capture_step()
    monkeypatch.setattr(checkpoint, "STEP_S", 1.0)
    assert not lab.checkpointer.capture_step()
    lab.write("a", 2)
    lab.checkpoint()
    lab.restart()
    assert lab.seqs("a") == [1, 2]


def flags(lab: Lab) -> tuple[set[int], set[int]]:
    """Deletions in the only sealed run: those its file shows, and those it does not show yet."""
    run = lab.engine.require("t").runs[0]
    assert run.sealed is not None
    segment = lab.engine.store.open_for_flips(run.sealed.segment)
    shown = set(np.flatnonzero(segment.flags(segment.entries[0]) == DEAD).tolist())
    segment.close()
    return shown, set(run.sealed.unflipped)


@pytest.fixture
def tagged(make_lab: Callable[..., Lab]) -> Lab:
    """One sealed run of eight records with a tag each."""
    lab = make_lab(segment_max_events=8)
    lab.write("t", *({"data": n, "tag": f"k{n}"} for n in range(8)))
    lab.checkpoint()
    return lab


def test_a_flag_is_flipped_when_two_snapshots_know_of_it_and_not_before(tagged: Lab) -> None:
    for number in range(1, 6):
        tagged.delete("t", match=f"k{number}")
        tagged.checkpoint()
        assert flags(tagged) == (set(range(1, number)), {number})
    left = tagged.states()
    tagged.kill()
    tagged.snapshot_files()[-1].write_bytes(b"rotten")
    tagged.open()
    assert tagged.states() == left


def test_a_deletion_that_comes_while_flags_are_flipped_is_not_forgotten(tagged: Lab) -> None:
    for number in (1, 2):
        tagged.delete("t", match=f"k{number}")
        tagged.checkpoint()
    body, replay_from = tagged.checkpointer.capture()
    tagged.checkpointer.write_snapshot(body)
    tagged.delete("t", match="k3")
    tagged.checkpointer.release(replay_from)
    assert flags(tagged) == ({1, 2}, {3})
    for _ in range(3):
        tagged.checkpoint()
        tagged.restart()
        assert tagged.seqs("t") == [1, 5, 6, 7, 8]


def test_a_checkpoint_is_due_when_there_is_something_to_keep(lab: Lab) -> None:
    checkpointer, age_ms = lab.checkpointer, lab.engine.settings.seal_age_ms
    for _ in range(2):
        lab.checkpoint(everything=True)
    assert not checkpointer.is_due()
    lab.clock.advance(10 * age_ms)
    assert not checkpointer.is_due(), "nothing was written"
    lab.checkpoint(everything=True)
    lab.write("t", 1)
    lab.clock.advance(age_ms - 1)
    assert not checkpointer.is_due()
    lab.clock.advance(1)
    assert checkpointer.is_due()


def test_each_of_two_snapshots_has_the_journal_that_it_needs(lab: Lab) -> None:
    """The older one is for the day on which the newer one cannot be read."""
    lab.write("t", 1)
    lab.checkpoint()
    lab.engine.rotate()
    lab.checkpoint(everything=True)
    assert len(lab.snapshot_files()) == 2
    lab.kill()
    for path in lab.segment_files():
        path.unlink()
    lab.snapshot_files()[-1].write_bytes(b"rotten")
    lab.open()
    assert lab.seqs("t") == [1]


def test_a_checkpoint_is_due_when_so_much_was_written(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.checkpoint()
    before = lab.engine.journal.position
    lab.write("t", 1)
    written = lab.engine.journal.position - before
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", written + 1)
    assert not lab.checkpointer.is_due()
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", written)
    assert lab.checkpointer.is_due()


def test_a_step_of_capturing_ends_when_its_time_is_over(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write("a", 1)
    monkeypatch.setattr(checkpoint, "STEP_S", 0.0)
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: 5.0)
    assert lab.checkpointer.capture_step()


# --- on a full disk -----------------------------------------------------------------------------------------


def test_or_if_journal_can(lab: Lab) -> None:
    """That of which every record is in segments, and which no backup holds on to."""
    lab.write("t", 1)
    plan = lab.checkpointer.sealer.plan(everything=True)
    lab.engine.rotate()
    journal = lab.engine.journal
    (end,) = (file.end for file in journal.files[:-1])
    lab.engine.queue.refusals.note_full()
    assert not lab.checkpointer.is_due(), "it has a record that no segment has"
    for file in plan:
        lab.checkpointer.sealer.write(file)
        lab.checkpointer.sealer.adopt(file)
    assert lab.checkpointer.is_due()
    for kept_from, is_due in ((end - 1, False), (end, True)):
        journal.kept_from = kept_from
        assert lab.checkpointer.is_due() == is_due
    journal.kept_from = None
    lab.engine.queue.refusals.resume()
    lab.write("t", 2)
    (run,) = lab.topic("t").runs[1:]
    assert run.start_position >= end
    lab.engine.queue.refusals.note_full()
    assert lab.checkpointer.is_due(), "what is needed begins behind it"


# --- quiet ------------------------------------------------------------------------------------------------


@pytest.fixture
def worked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A large job was done, for the bounds of this test."""
    monkeypatch.setattr(checkpoint, "IDLE_JOURNAL_BYTES", 2000)
    monkeypatch.setattr(checkpoint, "QUIET_BYTES", 1000)
    lab.write_each("t", 30)
    return lab


def test_journal_is_let_go_of_once_it_has_become_quiet(worked: Lab) -> None:
    checkpointer = worked.checkpointer
    assert not checkpointer.is_idle()
    worked.clock.advance(checkpoint.QUIET_MS - 1)
    assert not checkpointer.is_idle()
    worked.write("t", 1)  # a little is not noise
    worked.clock.advance(1)
    assert checkpointer.is_idle()
    worked.clock.advance(checkpoint.QUIET_MS)
    assert not checkpointer.is_idle()  # whatever came of it
    worked.write_each("t", 30)
    assert not checkpointer.is_idle()
    worked.clock.advance(checkpoint.QUIET_MS)
    assert checkpointer.is_idle()


def test_so_much_journal_is_much_and_so_much_writing_is_not(
    worked: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, journal = worked.checkpointer, worked.engine.journal
    monkeypatch.setattr(checkpoint, "QUIET_BYTES", journal.position - checkpointer._quiet_from)
    monkeypatch.setattr(checkpoint, "IDLE_JOURNAL_BYTES", journal.retained_bytes() + 1)
    worked.clock.advance(checkpoint.QUIET_MS)
    assert not checkpointer.is_idle()
    monkeypatch.setattr(checkpoint, "IDLE_JOURNAL_BYTES", journal.retained_bytes())
    assert checkpointer.is_idle()


def test_a_topic_on_its_way_to_disk_is_captured_once_it_is_there(lab: Lab) -> None:
    put_topic(lab.engine, "t", TopicConfig(), lambda _: None, lambda error: None)
    assert not lab.checkpointer.capture_step()  # nothing to do, and nothing forgotten
    lab.engine.queue.sync_now()
    lab.checkpoint()
    lab.restart()
    assert lab.engine.find("t") is not None
