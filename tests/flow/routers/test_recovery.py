"""Routers after a restart: the same copies, made again from frames of their source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab, survives
from tests.log.harness import JournalFrame
from tests.support.damage import cut, flip
from topics.storage.frame import Kind

# --- classes ------------------------------------------------------------------------------------------


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


# --- damage -------------------------------------------------------------------------------------------


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


Loss = Callable[[RouterLab], object]


LOSSES: dict[str, Loss] = {
    "nothing": lambda lab: None,
    "deleted": lambda lab: lab.delete("a", before=1000),
    "deleted by tag": lambda lab: lab.delete("a", match="x"),
    "evicted": lambda lab: lab.put("a", cap_records=1),
    "expired": lambda lab: (lab.put("a", ttl_ms=100), lab.clock.advance(1000)),
    "dropped": lambda lab: lab.drop("a"),
    "router deleted": lambda lab: lab.unroute("r"),
    "router changed": lambda lab: lab.route("r", "a", "b", preserve_tag=False, match="y", exactly_once=True),
    "a new instance": lambda lab: (lab.unroute("r"), lab.drop("a"), lab.write("a", 1)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("checkpoints", [0, 1, 3])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_copies_outlive_their_originals(
    lab: RouterLab, loss: Loss, checkpoints: int, exactly_once: bool
) -> None:
    lab.route("r", "a", "b", exactly_once=exactly_once)
    for number in range(7):
        lab.write("a", {"data": number, "tag": "x", "node": "n", "meta": {"m": number}})
        lab.clock.advance(1)
        if number != 4:
            lab.records("b")
    lab.records("b")
    loss(lab)
    for _ in range(checkpoints):
        lab.checkpoint()
    assert [record["data"] for record in lab.records("b")] == list(range(7))
    survives(lab)


def test_the_journal_is_held_only_as_long_as_it_is_needed(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    first = lab.journal_files()[0]
    lab.engine.journal.rotate()
    lab.write("a", 2)
    lab.checkpoint(everything=True)
    lab.checkpoint(everything=True)
    assert first not in lab.journal_files()
    survives(lab)


def test_an_unsealed_copy_holds_the_frames_of_a_sealed_source(tmp_path: Path) -> None:
    """Four records seal the source; the destination has one of them and is far from full."""
    lab = RouterLab(tmp_path)
    lab.route("r", "a", "b", match="wanted")
    lab.write("a", {"data": "copied", "tag": "wanted"})
    lab.records("b")
    lab.engine.journal.rotate()
    lab.write_each("a", 8)
    lab.records("b")
    for _ in range(3):
        lab.checkpoint()
    [source, *_] = lab.topic("a").runs
    [copy] = lab.topic("b").runs
    assert source.sealed is not None
    assert copy.sealed is None
    lab.delete("a", before=1000)
    lab.checkpoint()
    lab.checkpoint()
    survives(lab)
    assert lab.data("b") == ["copied"]
