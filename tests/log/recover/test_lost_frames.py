"""Journal that cannot be read: what it held is announced as lost, and no seq is given out twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import JournalFrame, Lab, check_loss, gap
from tests.support.appending import body_of, write_of
from tests.support.damage import cut, flip
from topics.core.config import TopicConfig
from topics.log.recover.lost_frames import LostFrames
from topics.log.topic import Topic
from topics.log.write.group import append_group
from topics.storage import witness
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.frame import FrameDraft, Header, Kind
from topics.storage.journal_reader import Damage


def copy(lab: Lab, name: str) -> Path:
    """The directory of a stopped engine, to be damaged in many ways."""
    target = lab.directory.parent / name
    shutil.copytree(lab.directory, target)
    return target


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


def append_frames(lab: Lab) -> list[JournalFrame]:
    return [frame for frame in lab.frames() if frame.kind == Kind.APPEND]


@pytest.mark.parametrize("place", ["header", "payload"])
def test_a_topic_whose_creation_is_damaged_keeps_its_records(lab: Lab, place: str) -> None:
    lab.write_each("kept", 1)
    lab.write_each("t", 3)
    epoch = lab.topic("t").id
    lab.kill()
    victim = [frame for frame in lab.frames() if frame.kind == Kind.CREATE][1]
    flip(victim.path, victim.offset + 20 if place == "header" else victim.payload_at + 2)
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


def test_later_records_prove_that_no_more_is_missing(lab: Lab) -> None:
    lab.write_each("t", 6)
    lab.kill()
    victim = append_frames(lab)[2]
    flip(victim.path, victim.offset + 20)
    lab.open()
    assert (lab.topic("t").head, lab.seqs("t")) == (6, [1, 2, 4, 5, 6])


def lose_power(lab: Lab) -> None:
    """Another boot, and of the journal only what had been synced."""
    journal = lab.engine.journal
    synced, newest = journal.synced, journal.files[-1]
    lab.kill()
    cut(lab.journal_files()[-1], FILE_HEADER_BYTES + max(synced - newest.base, 0))
    lab.disk.boot = b"boot-2"
    lab.open()


def test_a_group_that_rots_takes_no_reservation_with_it(lab: Lab) -> None:
    """The reservation it made is in what cannot be read: seqs above it may have been given out."""
    lab.put("t")
    topic = lab.topic("t")
    append_group(
        lab.engine,
        [(topic, [write_of(body_of(*range(1000)))])],
        lab.engine.now(),
        lambda _: FrameDraft(Kind.CLOCK, ts=lab.engine.now()),
        lambda: None,
        pytest.fail,
        sync=True,
    )
    lab.engine.queue.sync_now()
    lab.write_each("t", 20)
    group = next(frame for frame in lab.frames() if frame.kind == Kind.GROUP)
    flip(group.path, group.payload_at + 300)
    lose_power(lab)
    assert lab.seqs("t") == []
    check_loss(lab, "t", acked=1020)


# --- by itself ----------------------------------------------------------------------------------------------


@pytest.fixture
def topics(lab: Lab) -> list[Topic]:
    """Two with three records each, and nothing reserved above them."""
    for name in ("a", "b"):
        lab.write_each(name, 3)
        lab.topic(name).rewind(3)
    return [lab.topic("a"), lab.topic("b")]


def after(lab: Lab, damage: list[Damage], known_to: int = 0, **told: Any) -> LostFrames:
    lab.engine.witness.previous = witness.Testimony(**{"known": True, "clean": True} | told)
    lost = LostFrames(lab.engine, known_to)
    for one in damage:
        lost.note_damage(one)
    lost.close_reservations(10_000)
    return lost


def damaged(kind: Kind, topic_id: int = 0) -> Damage:
    numbers = dict.fromkeys(Header.__struct_fields__, 0)
    return Damage(1000, 1500, Header(**numbers | {"kind": kind, "topic_id": topic_id}))


@pytest.mark.parametrize(
    ("damage", "uncertain"),
    [
        (Damage(1000, 1500, None), True),
        (damaged(Kind.GROUP), True),
        (damaged(Kind.HEADS), False),
        (damaged(Kind.CLOCK), False),
    ],
    ids=["unknown", "group", "heads", "clock"],
)
def test_what_named_its_topics_in_what_cannot_be_read_may_have_given_out_seqs_of_all(
    lab: Lab, topics: list[Topic], damage: Damage, uncertain: bool
) -> None:
    after(lab, [damage])
    assert [topic.head > 3 for topic in topics] == [uncertain, uncertain]


def test_only_records_that_are_not_in_the_journal_take_no_room_in_it(lab: Lab, topics: list[Topic]) -> None:
    topics[1].set_config(TopicConfig(durability="ephemeral"))
    after(lab, [Damage(1000, 1500, None)])
    assert 3 + 5 < topics[0].head < 3 + 500
    assert topics[1].head > 3 + 500


def test_where_nothing_was_reserved_no_hole_is_made(lab: Lab, topics: list[Topic]) -> None:
    lost = after(lab, [damaged(Kind.ROUTE)])
    assert [topic.head for topic in topics] == [3, 3]
    before = len(lab.frames())
    assert lost.journal_holes()
    assert len(lab.frames()) == before


@pytest.mark.parametrize(("known_to", "is_known"), [(1499, False), (1500, True), (2000, True)])
def test_what_is_damaged_below_the_snapshot_had_its_effects(
    lab: Lab, topics: list[Topic], known_to: int, is_known: bool
) -> None:
    after(lab, [Damage(1000, 1500, None)], known_to)
    assert [topic.head > 3 for topic in topics] == [not is_known] * 2


@pytest.mark.parametrize(
    ("kind", "uncertain"),
    [
        (Kind.CONFIG, [True, False]),
        (Kind.ROUTER_PUT, [True, True]),
        (Kind.CURSOR, [False, False]),
    ],
)
def test_of_whom_a_configuration_may_be_lost(
    lab: Lab, topics: list[Topic], kind: Kind, uncertain: list[bool]
) -> None:
    """Few bytes of journal give out very many seqs then."""
    after(lab, [damaged(kind, topics[0].id), Damage(1500, 2000, None)])
    assert [topic.head > 3 + 500 for topic in topics] == uncertain


@pytest.mark.parametrize(("kind", "head"), [(Kind.ROUTE, 50), (Kind.CURSOR, 3)])
def test_a_damaged_step_of_a_router_may_have_fed_any_topic(
    lab: Lab, topics: list[Topic], kind: Kind, head: int
) -> None:
    for topic in topics:
        topic.reserve(50)
    after(lab, [damaged(kind)])
    assert [topic.head for topic in topics] == [head, head]
