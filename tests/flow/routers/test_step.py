"""A step: one frame for all destinations, and records that go no further than their hops allow."""

from __future__ import annotations

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import records as rows_of
from topics.flow.routers.copies import STAMP_KEY, carried_rows
from topics.flow.routers.frames import Step, decode_step
from topics.storage.frame import Kind


def test_one_step_moves_all_destinations_with_one_frame(lab: RouterLab) -> None:
    for number in range(20):
        lab.route(f"r{number}", "a", f"b{number}", match="x" if number == 7 else None)
    frames = lab.engine.counters.frames
    before = len(lab.frames())
    lab.write("a", {"data": 1}, {"data": 2})
    lab.background()
    new = [frame.kind for frame in lab.frames()[before:]]
    assert new == [Kind.APPEND, Kind.ROUTE]
    assert lab.engine.counters.frames == frames + 2
    assert lab.data("b3") == [1, 2]
    assert lab.data("b7") == []


@pytest.mark.parametrize("count", [1, 3, 100])
def test_destinations_of_one_step_number_their_copies_themselves(lab: RouterLab, count: int) -> None:
    lab.pulls = False
    lab.write("c", *range(9))
    lab.write("d", 1)
    lab.clock.advance(50)
    for dest in "bcdef":
        lab.route(f"to-{dest}", "a", dest)
    lab.write("a", *[{"data": "x" * n, "node": f"n{n % 3}"} for n in range(count)])
    assert lab.routers.step(lab.topic("a"))
    lab.engine.queue.sync_now()
    now = lab.clock.now_ms()
    for sealed in (False, True):
        for dest, head in (("b", 0), ("c", 9), ("d", 1), ("e", 0), ("f", 0)):
            assert [(r["$seq"], r["$ts"], r["data"], r["$node"]) for r in lab.records(dest)[head:]] == [
                (head + n + 1, now, "x" * n, f"n{n % 3}") for n in range(count)
            ]
            # Where each of them ends, their run knows as well.
            each = [rows_of(lab.diff(dest, head + n, 1)) for n in range(count)]
            assert [row["data"] for rows in each for row in rows] == ["x" * n for n in range(count)]
        if not sealed:
            lab.checkpoint(everything=True)


def test_a_step_does_not_repeat_the_records(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", "x" * 10_000)
    before = lab.engine.journal.position
    lab.records("b")
    assert lab.engine.journal.position - before < 300


def last_step(lab: RouterLab) -> Step:
    frame = next(frame for frame in reversed(lab.frames()) if frame.kind == Kind.ROUTE)
    return decode_step(frame.path.read_bytes()[frame.payload_at : frame.end])


def test_records_that_the_journal_will_not_have_are_in_the_step_once_and_only_if_they_are_kept(
    lab: RouterLab,
) -> None:
    lab.pulls = False
    lab.put("e", durability="ephemeral")
    for dest, match in (("b", "y"), ("c", "x"), ("d", "y*"), ("e", None)):
        lab.route(f"to-{dest}", "a", dest, match=match)
    lab.write("a", *[{"data": tag, "tag": tag} for tag in ("x", "y", "x", "yy", "z")])
    lab.checkpoint(everything=True)
    assert lab.routers.step(lab.topic("a"))
    lab.engine.queue.sync_now()
    carried = last_step(lab).carried
    assert carried is not None
    assert carried_rows(carried).seqs.tolist() == [1, 2, 3, 4]
    for _ in range(2):
        assert [lab.data(dest) for dest in "bcd"] == [["y"], ["x", "x"], ["y", "yy"]]
        lab.restart()


@pytest.mark.parametrize(("tags", "is_dense"), [("xxyz", True), ("yxxz", True), ("xyxz", False)])
def test_only_copies_of_scattered_records_say_which_they_are(
    lab: RouterLab, tags: str, is_dense: bool
) -> None:
    lab.route("r", "a", "b", match="x")
    lab.write("a", *[{"data": tag, "tag": tag} for tag in tags])
    assert lab.data("b") == ["x", "x"]
    assert [bool(piece.offsets) for piece in last_step(lab).plans[0].pieces] == [not is_dense]


@pytest.mark.parametrize("sealed", [False, True])
def test_hops_survive_a_restart(lab: RouterLab, sealed: bool) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    lab.write("a", 1)
    lab.records("b")
    if sealed:
        lab.checkpoint(everything=True)
    lab.restart()
    lab.background()
    assert (lab.topic("a").head, lab.topic("b").head) == (5, 4)


def test_a_loss_goes_as_far_as_a_record_would_have(lab: RouterLab) -> None:
    for hop in range(10):
        lab.route(f"r{hop}", f"t{hop}", f"t{hop + 1}")
    lab.put("t0", cap_records=1)
    lab.write("t0", 1, 2)
    lab.background()
    assert [lab.gaps(f"t{hop}") for hop in range(1, 9)] == [[(1, 1, "source_trim")]] * 8
    assert [lab.topic(f"t{hop}").head for hop in range(11)] == [2] * 9 + [0, 0]
    assert lab.router("r8").cursor == 2


@pytest.mark.parametrize("restart", ["never", "from the journal", "from a snapshot"])
def test_a_loss_in_a_loop_comes_to_rest(lab: RouterLab, restart: str) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    lab.put("a", cap_records=1)
    lab.write("a", 1, 2)
    for name in "bab":
        lab.routers.pull(lab.topic(name))
    assert (lab.topic("a").head, lab.topic("b").head) == (4, 4)
    if restart != "never":
        if restart == "from a snapshot":
            lab.checkpoint(everything=True)
        lab.restart()
    # Not for ever, should it not come to rest.
    looks = iter(range(1000))
    lab.routers.forward(lambda: next(looks, None) is None)
    assert (lab.topic("a").head, lab.topic("b").head) == (10, 8)
    assert lab.router("ab").forwarded == lab.router("ba").forwarded == 8


def test_copies_need_the_journal_from_where_their_originals_are(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.write("other", 1)
    lab.background()
    (original,), (copy,) = lab.topic("a").runs, lab.topic("b").runs
    assert copy.start_position == original.start_position


def test_a_router_that_has_passed_on_everything_is_not_blocked(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=2)
    lab.route("r", "a", "b")
    for count, is_blocked in ((2, False), (1, True)):
        lab.write_each("a", count)
        assert lab.router("r").is_blocked == is_blocked


@pytest.mark.parametrize(("dests", "first_seq"), [("b", 1), ("bc", 0)])
def test_the_header_of_a_step_names_its_only_destination(lab: RouterLab, dests: str, first_seq: int) -> None:
    """Should the rest rot, what it held is known to be lost there, and nowhere else."""
    for dest in dests:
        lab.route(f"r{dest}", "a", dest)
    lab.write("a", 1)
    lab.background()
    (step,) = (frame for frame in lab.frames() if frame.kind == Kind.ROUTE)
    assert step.first_seq == first_seq


@pytest.mark.parametrize(("durability", "is_there"), [("disk", True), ("fsync", False)])
def test_copies_wait_for_the_disk_only_where_the_topic_does(
    lab: RouterLab, durability: str, is_there: bool
) -> None:
    lab.put("b", durability=durability)
    lab.route("r", "a", "b")
    lab.write("b", 0)
    lab.write("a", 1)
    lab.routers.forward(lambda: False)
    lab.engine.queue.flush()
    assert (lab.topic("b").head == 2) == is_there
    lab.engine.queue.sync_now()
    assert lab.topic("b").head == 2


@pytest.mark.parametrize("names", ["pqr", "rqp", "qpr"])
def test_routers_that_move_together_each_leave_their_own_mark_or_none(lab: RouterLab, names: str) -> None:
    """Whoever was served before: copies are shared only among those that want the same."""
    for name in names:
        lab.route(name, "a", f"to-{name}", exactly_once=name != "p")
    lab.write("a", {"data": 1}, {"data": 2})
    lab.background()
    marks = {
        name: [row.get("meta", {}).get(STAMP_KEY, {}).get("router") for row in lab.records(f"to-{name}")]
        for name in names
    }
    assert marks == {"p": [None, None], "q": ["q", "q"], "r": ["r", "r"]}


@pytest.mark.parametrize(("reserved", "shown"), [(1, 1), (0, 0)])
def test_copies_wait_for_a_sync_only_where_their_seqs_are_not_reserved(
    lab: RouterLab, reserved: int, shown: int
) -> None:
    lab.pulls = False
    lab.route("r", "a", "b")
    dest = lab.topic("b")
    dest.reserved = dest.reserve_asked = dest.assigned + reserved
    lab.write("a", 1)
    lab.routers.forward(lambda: False)
    lab.engine.queue.flush()
    assert dest.head == shown
    lab.engine.queue.sync_now()
    assert dest.head == 1
