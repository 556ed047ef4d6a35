"""Routers across restarts: the same copies, whatever has become of their source, and none of them twice."""

from __future__ import annotations

import pytest

from tests.flow.routers.lab import RouterLab, survives
from tests.log.harness import JournalFrame
from tests.support.damage import cut, flip
from topics.storage.frame import Kind


def test_deletes_at_the_destination_hold(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write_each("a", 6, tag="x")
    lab.write("a", {"data": "y", "tag": "y"})
    lab.records("b")
    lab.delete("b", before=3)
    lab.delete("b", match="y")
    assert lab.data("b") == [2, 3, 4, 5]
    assert len(lab.data("a")) == 7
    survives(lab)
    assert lab.data("b") == [2, 3, 4, 5]


def test_holes_come_back_where_they_were(lab: RouterLab) -> None:
    lab.put("a", cap_records=2)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write_each("a", 5)
    lab.records("b")
    assert lab.gaps("b") == [(2, 4, "source_trim")]
    survives(lab)
    lab.delete("b", before=6)
    survives(lab)
    lab.write("a", "next")
    assert lab.records("b")[-1]["$seq"] == 7


def test_a_front_hole_comes_back(lab: RouterLab) -> None:
    lab.put("a", ttl_ms=100)
    lab.route("r", "a", "b")
    lab.write_each("a", 3)
    lab.clock.advance(1000)
    assert lab.gaps("b") == [(1, 3, "source_trim")]
    survives(lab)


def test_progress_without_copies_is_kept(lab: RouterLab) -> None:
    lab.route("r", "a", "b", match="never")
    lab.write_each("a", 3)
    lab.background()
    lab.restart()
    assert lab.router("r").cursor == 3


def test_forwarding_goes_on_where_it_stood(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write("a", 2)
    lab.restart()
    assert lab.routers.owing
    lab.background()
    assert lab.data("b") == [1, 2]
    assert lab.router("r").forwarded == 2
    lab.write("a", 3)
    assert lab.data("b") == [1, 2, 3]


def test_no_backfill_after_a_restart(lab: RouterLab) -> None:
    lab.write_each("a", 5)
    lab.route("r", "a", "b")
    lab.restart()
    lab.write("a", "new")
    assert lab.data("b") == ["new"]


def test_definitions_come_back(lab: RouterLab) -> None:
    lab.route("r", "a", "b", match="x*", preserve_node=False, allow_cycle=True, exactly_once=True)
    lab.route("s", "a", "c")
    lab.unroute("s")
    survives(lab)
    assert lab.router("r").options.filter_value == "x"
    assert lab.route("t", "a", "d")
    assert lab.router("t").id > lab.router("r").id


# --- classes ------------------------------------------------------------------------------------------


def test_copies_in_an_ephemeral_destination_are_not_kept(lab: RouterLab) -> None:
    lab.put("b", durability="ephemeral")
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    assert lab.data("b") == [1, 2]
    lab.restart()
    assert lab.data("b") == []
    assert lab.gaps("b") == [(1, 2, "cap")]
    lab.write("a", 3)
    assert [(r["$seq"], r["data"]) for r in lab.records("b")] == [(3, 3)]
    assert lab.data("a") == [1, 2, 3]


@pytest.mark.parametrize("checkpoints", [0, 1, 3])
def test_copies_of_ephemeral_records_are_kept(lab: RouterLab, checkpoints: int) -> None:
    lab.put("a", durability="ephemeral")
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    lab.write("a", {"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}, 2)
    lab.background()
    before = lab.records("c")
    for _ in range(checkpoints):
        lab.checkpoint()
    lab.restart()
    assert lab.data("a") == []
    assert lab.data("b") == [1, 2]
    assert lab.records("c") == before


def test_unforwarded_ephemeral_records_become_a_hole(lab: RouterLab) -> None:
    lab.put("a", durability="ephemeral")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write("a", 2, 3)
    lab.restart()
    lab.write("a", 4)
    assert lab.data("b") == [1, 4]
    assert lab.gaps("b") == [(2, 3, "source_trim")]


def test_a_change_of_class_between_copies(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.put("b", durability="fsync")
    lab.write("a", 2)
    lab.records("b")
    lab.put("b", durability="memory")
    lab.write("a", 3)
    survives(lab)
    assert lab.data("b") == [1, 2, 3]


# --- damage -------------------------------------------------------------------------------------------


def test_a_torn_step_is_taken_again(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write("a", 2)
    lab.records("b")
    lab.kill()
    frame = lab.frames()[-1]
    assert frame.kind == Kind.ROUTE
    cut(frame.path, frame.end - 3)
    lab.open()
    assert lab.data("a") == lab.data("b") == [1, 2]


def test_rot_in_a_step_is_announced(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    lab.records("b")
    lab.write("a", 3)
    lab.records("b")
    lab.kill()
    first, _ = (frame for frame in lab.frames() if frame.kind == Kind.ROUTE)
    flip(first.path, first.payload_at + 2)
    lab.open()
    assert lab.gaps("b") == [(1, 2, "cap")]
    assert [(r["$seq"], r["data"]) for r in lab.records("b")] == [(3, 3)]


def test_rot_in_the_last_step_of_several_destinations_never_leads_to_a_seq_given_out_twice(
    lab: RouterLab,
) -> None:
    lab.route("r", "a", "b")
    lab.route("s", "a", "c")
    lab.write("a", 1, 2)
    lab.background()
    lab.write("x", "proof that the step was synced")
    lab.kill()
    step = next(frame for frame in lab.frames() if frame.kind == Kind.ROUTE)
    flip(step.path, step.payload_at + 2)
    lab.open()
    for dest in ("b", "c"):
        assert lab.data(dest) == [1, 2]
        assert lab.records(dest)[0]["$seq"] > 2
        assert lab.gaps(dest)[0][:1] == (1,)


def test_rot_in_the_source_takes_only_what_cannot_be_had(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.write("a", 2)
    lab.records("b")
    lab.write("a", 3)
    lab.records("b")
    lab.kill()
    first = next(frame for frame in lab.frames() if frame.kind == Kind.APPEND)
    flip(first.path, first.payload_at + 10)
    lab.open()
    assert lab.data("a") == [2, 3]
    assert lab.topic("b").head == 3
    assert lab.gaps("b")[0][2] == "cap"
    assert lab.data("b")[-1] == 3


def test_a_damaged_snapshot_falls_back_to_the_one_before(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    for number in range(3):
        lab.write("a", number, -number)
        lab.records("b")
        lab.checkpoint()
    lab.delete("a", before=4)
    lab.checkpoint()
    state = lab.everything()
    lab.kill()
    flip(lab.snapshot_files()[-1], 100)
    lab.open()
    assert lab.everything() == state


def test_recovering_twice_is_recovering_once(lab: RouterLab) -> None:
    lab.put("a", cap_records=3)
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c", exactly_once=True)
    lab.write_each("a", 3)
    lab.background()
    lab.write_each("a", 6)
    lab.background()
    state = lab.everything()
    for _ in range(3):
        lab.restart()
    assert lab.everything() == state


def test_a_destination_whose_creation_is_damaged_keeps_its_copies(lab: RouterLab) -> None:
    """No record was ever appended to it: only steps tell that it was there."""
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    lab.background()
    copies, epoch = lab.data("b"), lab.topic("b").id
    lab.kill()
    victim = next(f for f in lab.frames() if f.kind == Kind.CREATE and b"\xa1b" in read_payload(f))
    flip(victim.path, victim.payload_at + 2)
    lab.open()
    assert lab.data(f"recovered-{epoch}") == copies == [1, 2]


@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_router_goes_with_an_end_of_which_nothing_can_be_read(lab: RouterLab, lost: str) -> None:
    """Not even whose creation it was. All else is there."""
    lab.put("elsewhere")
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    lab.background()
    lab.write("elsewhere", 3)
    lab.kill()
    text = b"\xa1" + lost.encode()
    victim = next(f for f in lab.frames() if f.kind == Kind.CREATE and text in read_payload(f))
    flip(victim.path, victim.offset)
    lab.open()
    assert lab.routers.find("r") is None
    assert lab.data("elsewhere") == [3]
    assert lab.engine.totals.damage


def read_payload(frame: JournalFrame) -> bytes:
    return frame.path.read_bytes()[frame.payload_at : frame.end]


@pytest.mark.parametrize("kind", [Kind.ROUTER_PUT, Kind.ROUTE, Kind.ROUTER_DROP])
def test_seqs_of_copies_stay_used_up_when_the_end_of_the_journal_is_cut_off(
    lab: RouterLab, kind: Kind
) -> None:
    """Copies are small in the journal: with the router's own frames gone, nothing there tells how many."""
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", *range(3000))
    assert lab.topic("b").head == 0
    assert len(lab.data("b")) == 3000
    lab.unroute("r")
    lab.kill()
    frame = next(frame for frame in lab.frames() if frame.kind == kind)
    cut(frame.path, frame.offset)
    lab.open()
    head = lab.topic("b").head
    assert 3000 <= head < 10_000, "nothing is given out twice, and only what was reserved is skipped"
    assert lab.write("b", "next").first_seq == head + 1


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_copies_of_some_records_are_made_again_from_those(lab: RouterLab, checkpoints: int) -> None:
    lab.route("r", "a", "b", match="x")
    for number, tag in enumerate("xyyxxyx"):
        lab.write("a", {"data": number, "tag": tag})
    assert lab.data("b") == [0, 3, 4, 6]
    for _ in range(checkpoints):
        lab.checkpoint()
    lab.restart()
    assert lab.data("b") == [0, 3, 4, 6]
    assert lab.gaps("b") == []
    assert lab.engine.totals.damage == 0


def test_copies_that_a_segment_has_are_not_brought_back_beside_it(lab: RouterLab) -> None:
    """A record elsewhere, in no segment yet, has the journal read from before they were made."""
    lab.pulls = False
    lab.write("elsewhere", 1)
    lab.route("r", "a", "b")
    for first in (1, 5):
        lab.write("a", *range(first, first + 4))
        lab.background()
    lab.write("a", 9)
    lab.background()
    lab.checkpoint()
    topic = lab.topic("b")
    assert [run.sealed is not None for run in topic.runs] == [True, True, False]
    before = lab.state("b")
    lab.restart()
    assert lab.state("b") == before
    assert [run.base for run in lab.topic("b").runs] == [1, 5, 9]
