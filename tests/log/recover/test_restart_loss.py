"""Disks that lose or spoil what they were given: nothing vanishes in silence, no seq is given out twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.queues.lab import unexpected
from tests.log.harness import JournalFrame, Lab, gap
from tests.support.damage import cut, flip
from topics.log.engine import Engine
from topics.log.lifecycle import put_topic
from topics.log.recover.recovery import Recovery
from topics.log.write.append_request import parse_append
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import File
from topics.storage.frame import Kind
from topics.storage.segment import DEAD, LIVE
from topics.values.config import TopicConfig


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "data")


def copy(lab: Lab, name: str) -> Path:
    """The directory of a stopped engine, to be damaged in many ways."""
    target = lab.directory.parent / name
    shutil.copytree(lab.directory, target)
    return target


def check_loss(lab: Lab, name: str, acked: int) -> None:
    """Whatever is not delivered is announced, and the seqs that were acknowledged stay used up."""
    topic = lab.topic(name)
    assert topic.head >= acked
    delivered = set(lab.seqs(name))
    announced = {seq for first, last, _ in lab.gaps(name) for seq in range(first, last + 1)}
    assert delivered | announced >= set(range(1, topic.head + 1)), "something vanished in silence"
    assert all(reason == "cap" for *_, reason in lab.gaps(name))
    before = lab.states()
    lab.restart()
    assert lab.states() == before, "recovering twice is not the same as once"
    head = lab.topic(name).head
    assert lab.write(name, "next").first_seq == head + 1


# --- a shorter journal ------------------------------------------------------------------------------------


def cut_points(frames: list[JournalFrame]) -> list[int]:
    """Every frame boundary, and places inside header and payload."""
    inside = {place for f in frames for place in (f.offset + 7, f.payload_at, f.payload_at + 3, f.end - 1)}
    return sorted(inside | {f.offset for f in frames})


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("durability", ["disk", "memory", "fsync", "ephemeral"])
def test_a_cut_journal_leaves_a_prefix_and_an_announced_hole(lab: Lab, clean: bool, durability: str) -> None:
    lab.put("t", durability=durability)
    lab.write_each("t", 6)
    lab.delete("t", before=2)
    lab.engine.close(clean=clean)
    frames = lab.frames()
    created = next(frame for frame in frames if frame.kind == Kind.CREATE)
    for point in cut_points([frame for frame in frames if frame.offset >= created.end]):
        directory = copy(lab, f"cut-{point}")
        hurt = directory / "journal" / frames[0].path.name
        cut(hurt, point)
        survivor = Lab(directory)
        kept = [f.first_seq for f in frames if f.kind == Kind.APPEND and f.end <= point]
        assert survivor.seqs("t") == kept, "what survives is a prefix, and nothing is invented"
        check_loss(survivor, "t", acked=6)
        survivor.kill()


def test_a_cut_that_takes_the_reservation_along(lab: Lab) -> None:
    """The frame that reserved the seqs is gone as well: only its size bounds what it handed out."""
    lab.write("t", 0)
    lab.write("t", *range(5000))
    lab.write("t", *range(300))
    lab.kill()
    batch = next(frame for frame in lab.frames() if frame.first_seq == 2)
    reserve = next(frame for frame in lab.frames() if frame.kind == Kind.RESERVE)
    for frame in (batch, reserve):
        directory = copy(lab, f"cut-{frame.kind}")
        cut(directory / "journal" / frame.path.name, frame.offset)
        survivor = Lab(directory)
        assert survivor.seqs("t") == [1]
        check_loss(survivor, "t", acked=5301)
        survivor.kill()


def test_other_topics_are_not_disturbed_by_a_lossless_restart(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        lab.write_each(name, 5)
    before = lab.states()
    for clean in (False, True, False):
        lab.restart(clean=clean)
        assert lab.states() == before


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


# --- ephemeral records ------------------------------------------------------------------------------------


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
def test_ephemeral_records_that_are_gone_are_not_called_damage(lab: Lab, clean: bool) -> None:
    lab.put("t", durability="ephemeral")
    lab.write_each("t", 3)
    lab.checkpoint()
    lab.restart(clean=clean)
    assert lab.gaps("t") == [(1, 3, "cap")]
    assert lab.engine.totals.damage == 0


def test_ephemeral_records_that_grow_old_unseen_cost_no_frame(lab: Lab) -> None:
    lab.put("t", durability="ephemeral", ttl_ms=1000)
    for _ in range(5):
        lab.write("t", 1)
        lab.clock.advance(1001)
    assert all(frame.kind != Kind.LINES for frame in lab.frames())
    for _ in range(3):
        assert lab.gaps("t") == [(1, 5, "ttl")]
    assert sum(frame.kind == Kind.LINES for frame in lab.frames()) == 1


# --- a spoiled journal ------------------------------------------------------------------------------------


def append_frames(lab: Lab) -> list[JournalFrame]:
    return [frame for frame in lab.frames() if frame.kind == Kind.APPEND]


@pytest.mark.parametrize("place", ["header", "payload"])
@pytest.mark.parametrize("index", [0, 2, 5])
def test_damage_in_the_middle_is_a_hole_and_not_the_end(lab: Lab, place: str, index: int) -> None:
    lab.write_each("t", 6)
    lab.kill()
    victim = append_frames(lab)[index]
    flip(victim.path, victim.offset + 20 if place == "header" else victim.payload_at + 5)
    lab.open()
    assert lab.seqs("t") == [seq for seq in range(1, 7) if seq != index + 1]
    assert lab.gaps("t")[0][:2] == (index + 1, max(index + 1, lab.topic("t").head if index == 5 else 0))
    assert lab.engine.totals.damage
    check_loss(lab, "t", acked=6)


def test_damage_to_two_topics_at_once(lab: Lab) -> None:
    for name in ("a", "b"):
        lab.write_each(name, 2)
    for name in ("a", "b"):
        lab.write_each(name, 1)
    lab.kill()
    for victim in append_frames(lab)[-2:]:
        flip(victim.path, victim.payload_at + 5)
    lab.open()
    for name in ("a", "b"):
        assert lab.seqs(name) == [1, 2]
        assert lab.gaps(name) == [(3, 3, "cap")]
        check_loss(lab, name, acked=3)


def test_a_topic_whose_creation_is_damaged_keeps_its_records(lab: Lab) -> None:
    lab.write_each("kept", 1)
    lab.write_each("t", 3)
    epoch = lab.topic("t").id
    lab.kill()
    victim = [frame for frame in lab.frames() if frame.kind == Kind.CREATE][1]
    flip(victim.path, victim.payload_at + 2)
    lab.open()
    assert list(lab.engine.names_after("", "")) == ["kept", f"recovered-{epoch}"]
    assert lab.seqs(f"recovered-{epoch}") == [1, 2, 3]
    lab.write_each("t", 1)
    assert lab.topic("t").id > epoch
    before = lab.states()
    lab.restart()
    assert lab.states() == before


@pytest.mark.parametrize("said_by", [Kind.CREATE, Kind.CONFIG])
def test_a_topic_whose_class_cannot_be_read_may_have_been_ephemeral(lab: Lab, said_by: Kind) -> None:
    """Its seqs take no room in the journal then, however many they are."""
    if said_by == Kind.CONFIG:
        lab.put("t")
    lab.put("t", durability="ephemeral")
    lab.write("t", *range(8))
    frames = lab.frames()
    for _ in range(2):
        lab.write_each("other", 1)
        lab.engine.queue.sync_journal()
    lab.kill()
    for victim in frames:
        if victim.kind == said_by:
            flip(victim.path, victim.payload_at + 2)
        elif victim.kind in (Kind.ADVANCE, Kind.RESERVE):
            flip(victim.path, victim.offset + 20)
    lab.disk.boot += b"+"
    lab.open()
    (topic,) = (topic for topic in lab.engine.by_id.values() if topic.name != "other")
    assert topic.head >= 8
    assert topic.loss_line == topic.head + 1


def test_a_hole_inside_is_taken_in_when_the_cap_passes_it(lab: Lab) -> None:
    lab.write_each("t", 6)
    lab.kill()
    victim = append_frames(lab)[2]
    flip(victim.path, victim.payload_at + 5)
    lab.open()
    page = lab.diff("t")
    assert (page.next_from_seq, page.caught_up, page.tombstone) == (2, False, None)
    page = lab.diff("t", 2)
    assert gap(page) == (3, 3, "cap")
    assert page.next_from_seq == 6
    lab.put("t", cap_records=2)
    assert lab.gaps("t") == [(1, 4, "cap")]
    assert lab.lines("t") == (6, 5, 5)
    lab.restart()
    assert lab.gaps("t") == [(1, 4, "cap")]


def test_a_hole_is_not_silenced_by_a_delete(lab: Lab) -> None:
    lab.write_each("t", 6)
    lab.kill()
    victim = append_frames(lab)[2]
    flip(victim.path, victim.payload_at + 5)
    lab.open()
    lab.delete("t", before=5)
    for _ in range(2):
        assert lab.lines("t") == (6, 5, 1)
        assert lab.gaps("t") == [(3, 3, "cap")]
        assert lab.seqs("t") == [5, 6]
        lab.restart()


# --- spoiled snapshots ------------------------------------------------------------------------------------


def with_two_snapshots(lab: Lab) -> None:
    lab.put("t", cap_records=9)
    for _ in range(2):
        lab.write_each("t", 5, tag="x")
        lab.delete("t", before=3)
        lab.checkpoint()
    lab.delete("t", before=4, match="x")
    lab.write_each("t", 1)


def test_a_damaged_snapshot_is_passed_over(lab: Lab) -> None:
    with_two_snapshots(lab)
    before = lab.states()
    lab.kill()
    newest = lab.snapshot_files()[-1]
    flip(newest, newest.stat().st_size // 2)
    lab.open()
    assert lab.states() == before
    lab.checkpoint()
    lab.restart()
    assert lab.states() == before


@pytest.mark.parametrize("index", [0, 1])
def test_a_damaged_snapshot_is_replaced_soon(lab: Lab, index: int) -> None:
    for _ in range(3):
        lab.write_each("t", 1)
        lab.checkpoint()
    lab.restart()
    assert not lab.checkpointer.is_due()
    lab.kill()
    flip(lab.snapshot_files()[index], 40)
    lab.open()
    assert lab.checkpointer.is_due()
    lab.checkpoint()
    assert not lab.checkpointer.is_due()


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


# --- spoiled segments -------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    flip(path, 60)


def behead(path: Path) -> None:
    cut(path, 100)


def empty(path: Path) -> None:
    cut(path, 0)


def sealed(lab: Lab, **config: object) -> None:
    """Three segments of four records, and two records in memory."""
    lab.put("t", **config)
    lab.write_each("t", 14, tag="x")
    lab.checkpoint()
    lab.checkpoint()
    assert len(lab.segment_files()) == 3


@pytest.mark.parametrize("hurt", [spoil, behead, empty, remove])
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_a_damaged_segment_becomes_a_hole(
    lab: Lab, hurt: Callable[[Path], None], index: int, restart: bool
) -> None:
    sealed(lab)
    lab.kill()
    hurt(lab.segment_files()[index])
    lab.open()
    first, last = 4 * index + 1, 4 * index + 4
    assert lab.seqs("t") == [seq for seq in range(1, 15) if not first <= seq <= last]
    assert lab.gaps("t") == [(first, last, "cap")]
    if restart:
        lab.checkpoint()
    check_loss(lab, "t", acked=14)


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
    sealed(lab, ttl_ms=100, cap_records=15)
    lab.delete("t", before=9, match="nothing")
    lab.kill()
    spoil(lab.segment_files()[index])
    lab.open()
    act(lab)
    topic = lab.topic("t")
    lab.seqs("t")  # whoever reads a damaged segment finds it out
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


def test_a_checkpoint_survives_a_segment_it_cannot_flip(lab: Lab) -> None:
    sealed(lab)
    lab.delete("t", before=3, match="x")
    lab.checkpoint()
    spoil(lab.segment_files()[0])
    behead(lab.segment_files()[0])
    lab.checkpoint()
    lab.restart()
    assert lab.seqs("t") == list(range(5, 15))
    assert lab.gaps("t") == [(1, 4, "cap")]


def test_a_file_that_cannot_be_read_for_a_moment_costs_no_record(lab: Lab) -> None:
    sealed(lab)
    before = lab.states()
    lab.restart()
    opened, refusals = lab.disk.open, [OSError(5, "Input/output error")]

    def open_or_refuse(path: str) -> File:
        if refusals and path.endswith(".segment"):
            raise refusals.pop()
        return opened(path)

    lab.disk.open = open_or_refuse  # type: ignore[method-assign]
    assert lab.states() == before
    assert not refusals
    assert lab.gaps("t") == []


def test_a_delete_survives_the_journal_that_carried_it(lab: Lab) -> None:
    sealed(lab)
    lab.delete("t", before=7, match="x")
    for _ in range(3):
        lab.write_each("t", 4)
        lab.checkpoint(everything=True)
        lab.restart()
    assert all(frame.kind != Kind.DELETE for frame in lab.frames())
    assert lab.seqs("t")[0] == 7


# --- classes ----------------------------------------------------------------------------------------------


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
    engine.append("t", parse_append(b'{"records":[{"data":1}]}'), lambda _: None, unexpected)
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


# --- power loss -------------------------------------------------------------------------------------------


def lose_power(lab: Lab) -> None:
    """Another boot, and of the journal only what had been synced."""
    journal = lab.engine.journal
    synced, newest = journal.synced, journal.files[-1]
    lab.kill()
    cut(lab.journal_files()[-1], FILE_HEADER_BYTES + max(synced - newest.base, 0))
    lab.disk.boot = b"boot-2"
    lab.open()


@pytest.mark.parametrize("durability", ["disk", "memory", "ephemeral"])
def test_power_loss_takes_an_unsynced_tail_and_announces_it(lab: Lab, durability: str) -> None:
    lab.put("t", durability=durability)
    lab.write_each("t", 3)
    lab.engine.queue.sync_journal()
    lab.write_each("t", 4)
    lose_power(lab)
    assert lab.seqs("t") == ([] if durability == "ephemeral" else [1, 2, 3])
    check_loss(lab, "t", acked=7)


def test_power_loss_in_the_first_life_of_a_server(tmp_path: Path) -> None:
    """The page is then as old as the start, when nothing had been acknowledged yet."""
    lab = Lab(tmp_path / "young")
    page = lab.directory / "witness"
    as_it_began = page.read_bytes()
    lab.put("t")
    lab.write_each("t", 3)
    synced = lab.engine.journal.synced
    lab.kill()
    page.write_bytes(as_it_began)
    cut(lab.journal_files()[-1], FILE_HEADER_BYTES + synced)
    lab.disk.boot = b"boot-2"
    lab.open()
    check_loss(lab, "t", acked=3)


def test_power_loss_takes_nothing_that_was_synced(lab: Lab) -> None:
    lab.put("t", durability="fsync")
    lab.write_each("t", 7)
    lab.delete("t", before=3)
    before = lab.states()
    lose_power(lab)
    assert lab.states() == before, "the head of an fsync topic is exact"


def test_power_loss_after_a_clean_stop_takes_nothing(lab: Lab) -> None:
    lab.write_each("t", 7)
    before = lab.states()
    lab.stop()
    lab.disk.boot = b"boot-2"
    lab.open()
    assert lab.states() == before


def test_power_loss_right_after_recovery(lab: Lab) -> None:
    """The hole the first recovery announced is still there after the second."""
    lab.write_each("t", 3)
    lose_power(lab)
    head = lab.topic("t").head
    gaps = lab.gaps("t")
    assert head >= 3
    lab.kill()
    lab.disk.boot = b"boot-3"
    lab.open()
    assert lab.topic("t").head >= head
    assert lab.gaps("t")[0][0] == gaps[0][0]


def test_age_shown_before_a_restart_is_shown_after_it(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl")
    lab.clock.advance(-101)
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


def test_a_deletion_that_rots_away_does_not_bring_the_record_back(lab: Lab) -> None:
    """Flags lie outside the checksums; how many of them are set is known all the same."""
    for number in range(8):
        lab.write("t", {"data": number, "tag": f"k{number}"})
    lab.checkpoint()
    assert lab.delete("t", match="k2") == 1
    for _ in range(3):
        lab.write("other", 1)
        lab.checkpoint()
    lab.kill()
    first = lab.segment_files()[0]
    flags = first.read_bytes().find(bytes([LIVE, LIVE, DEAD, LIVE]))
    flip(first, flags + 2)
    lab.open()
    assert lab.seqs("t") == [5, 6, 7, 8], "a deleted record is back"
    assert lab.gaps("t") == [(1, 4, "cap")]


def test_a_number_that_comes_again_is_looked_for_in_the_right_tier(tmp_path: Path) -> None:
    """The only snapshot is damaged: all is read from the journal, and sealed anew under the old numbers."""
    lab = Lab(tmp_path / "data", cold_dir=str(tmp_path / "cold"))
    lab.write_each("t", 9)
    lab.checkpoint()
    for path in lab.segment_files():
        path.rename(tmp_path / "cold" / path.name)
    lab.kill()
    flip(lab.snapshot_files()[0], -1)
    lab.open()
    lab.checkpoint()
    assert lab.segment_files()
    assert lab.seqs("t") == list(range(1, 10))
    assert lab.gaps("t") == []


# --- the way back -----------------------------------------------------------------------------------------


def test_whoever_asks_is_told_that_recovery_is_over_when_it_is(lab: Lab) -> None:
    """It runs on a thread of its own; metrics, which answer meanwhile, would let topics expire beside it."""
    lab.write_each("t", 3)
    lab.kill()
    engine = Engine(lab.engine.settings, lab.disk, lab.clock)
    told: list[tuple[float, bool]] = []
    Recovery(engine, lambda progress: told.append((progress, engine.recovered))).run()
    assert told[-1] == (1.0, False)
    assert engine.recovered
    engine.close(clean=True)
    lab.open()
