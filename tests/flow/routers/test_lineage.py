"""Copies are made again from the frames of their originals, which stay as long as a copy needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab, survives
from tests.support.appending import write_of
from topics import codec
from topics.flow.routers.frames import COPIES, CopyPlan, CopyRange, Step
from topics.flow.routers.lineage import Lineage
from topics.storage.frame import Frame, Kind

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


def seal_and_forget(lab: RouterLab, *sources: str) -> None:
    """Fill the sources' runs so that they are sealed, empty them, and let go of every file that can go."""
    lab.engine.journal.rotate()
    for source in sources:
        lab.write_each(source, 8)
    lab.background()
    for _ in range(3):
        lab.checkpoint()
    for source in sources:
        lab.delete(source, before=1000)
    lab.checkpoint()
    lab.checkpoint()


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


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_sealed_originals_may_go_as_well(lab: RouterLab, loss: Loss) -> None:
    """A router that was held back copies what is sealed already, and the files go afterwards."""
    lab.put("b", discard="reject", cap_records=1)
    lab.route("r", "a", "b")
    lab.write_each("a", 9, tag="x")
    lab.records("b")
    lab.checkpoint(everything=True)
    lab.put("b")
    assert lab.data("b") == list(range(9))
    loss(lab)
    lab.checkpoint()
    lab.checkpoint()
    assert lab.data("b") == list(range(9))
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


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_run_begun_by_a_direct_write_holds_older_frames_too(lab: RouterLab, restarts: int) -> None:
    lab.route("r", "a", "b", match="wanted")
    lab.write("a", {"data": "copied late", "tag": "wanted"})
    lab.engine.journal.rotate()
    lab.write("b", "direct")
    assert lab.data("b") == ["direct", "copied late"]
    lab.checkpoint()
    for _ in range(restarts):
        lab.restart()
    seal_and_forget(lab, "a")
    assert lab.topic("b").runs[0].sealed is None
    survives(lab)
    assert lab.data("b") == ["direct", "copied late"]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_copy_of_a_copy_holds_the_first_original(lab: RouterLab, restarts: int) -> None:
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c", match="wanted")
    lab.write("a", {"data": "copied twice", "tag": "wanted"})
    assert lab.data("b") == ["copied twice"]
    lab.engine.journal.rotate()
    assert lab.data("c") == ["copied twice"]
    lab.checkpoint()
    for _ in range(restarts):
        lab.restart()
    seal_and_forget(lab, "a", "b")
    assert lab.topic("c").runs[0].sealed is None
    survives(lab)
    assert lab.data("c") == ["copied twice"]


def test_chains_come_back_whole(lab: RouterLab) -> None:
    lab.route("ab", "a", "b", match="x*")
    lab.route("bc", "b", "c", preserve_tag=False)
    lab.route("cd", "c", "d", exactly_once=True)
    for number in range(6):
        lab.write("a", {"data": number, "tag": "xy" if number % 2 else "z"}, {"data": -number, "tag": "x"})
        lab.background()
    for gone in ("a", "b", "c"):
        lab.delete(gone, before=3)
        survives(lab)
        lab.drop(gone)
    survives(lab)
    assert lab.data("d") == [0, 1, -1, -2, 3, -3, -4, 5, -5]


def appended(*firsts: int) -> Lineage:
    """Of a topic with the id 1: what its frames brought, two records each, from these seqs on."""
    lineage = Lineage()
    lineage.follow(1)
    for first in firsts:
        write = write_of(b'{"records":[{"data":%d},{"data":%d}]}' % (first, first + 1))
        rows = codec.encode([write], first, 9)
        body = memoryview(rows.payload)
        lineage.note_append(
            Frame(Kind.APPEND, rows.flags, 2, 1, first, 9, 0, 0, position=100 * first, payload=body)
        )
    return lineage


def test_what_is_not_in_the_journal_any_more_cannot_be_copied_again() -> None:
    lineage = appended(3, 7)

    def render(source: int, first: int, count: int = 1) -> list[int] | None:
        piece = CopyRange(COPIES, first, count, 50)
        plan = CopyPlan(1, 0, count, 2, 9, True, True, True, None, [piece])
        made = lineage.render(Step(source, [plan]), plan, piece, 9000)
        if made is None:
            return None
        return [made.position, *(json.loads(row)["data"] for row in bytes(made.rows.text).splitlines())]

    assert [render(1, first) for first in (2, 5, 6, 9)] == [None] * 4
    assert render(2, 3) is None
    assert [render(1, first) for first in (3, 4, 7, 8)] == [[300, 3], [300, 4], [700, 7], [700, 8]]
    assert render(1, 4, 2) is None
    # A copy of a copy depends on what that was made from, and on nothing before it.
    for first, dest in ((7, 50), (5, 52), (2, 53)):
        step = Step(1, [CopyPlan(1, 0, 1, 2, 9, True, True, True, None, [CopyRange(COPIES, first, 1, dest)])])
        lineage.follow(2)
        lineage.note_step(step, 8000 + dest)
    assert render(2, 50) == [700, 7]
    assert [render(2, first) for first in (51, 52, 53)] == [None] * 3
    lineage.follow(3)
    lineage.note_step(
        Step(77, [CopyPlan(1, 0, 1, 3, 9, True, True, True, None, [CopyRange(COPIES, 1, 1, 1)])]), 8100
    )
    assert render(3, 1) is None
