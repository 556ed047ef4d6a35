"""One step of the routers of a source: which records, how many, what is written, and when it shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.flow.routers.lab import RouterLab, seqs_and_data
from tests.support.appending import append
from topics.core.settings import MAX_SEQ
from topics.flow.routers.copies import STAMP_KEY, carried_rows, copies_of, stamped
from topics.flow.routers.definitions import Stamp, Step, decode_step
from topics.flow.routers.step import Capacity, capacity_of, read_window
from topics.log.remove import ledger
from topics.storage import Records
from topics.storage.frame import Kind


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


# --- by itself ----------------------------------------------------------------------------------------------


def test_loss_is_told_where_it_was_and_no_further(lab: RouterLab) -> None:
    lab.put("a", cap_records=3)
    lab.write_each("a", 5)
    lab.topic("a").add_hole(6, 9, ledger.LOST, found_ms=1)
    lost = {
        (after, upto): [
            (first, last) for first, last, _ in read_window(lab.topic("a"), after, 9, 99, upto).lost
        ]
        for after, upto in ((0, 1), (0, 5), (1, 5), (2, 5), (5, 9), (7, 8), (0, 9))
    }
    assert lost == {
        (0, 1): [(1, 1)],
        (0, 5): [(1, 2)],
        (1, 5): [(2, 2)],
        (2, 5): [],
        (5, 9): [(6, 9)],
        (7, 8): [(8, 8)],
        (0, 9): [(1, 2), (6, 9)],
    }


def test_later_records_wait_behind_one_that_is_too_large_for_now(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_bytes=100)
    lab.route("r", "a", "b")
    lab.write("a", "x" * 58, "y" * 58, "z")
    assert lab.data("b") == ["x" * 58]
    lab.delete("b", before=2)
    assert lab.data("b") == ["y" * 58, "z"]


def test_the_byte_quota_of_the_server_holds_for_copies(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_total_bytes=10)
    lab.route("r", "a", "b")
    lab.write("a", "aa", "bb")
    assert lab.data("b") == []
    lab.delete("a", before=2)
    assert lab.data("b") == ["bb"]
    assert lab.engine.totals.bytes <= 10


# --- by itself ----------------------------------------------------------------------------------------------


def test_room_is_taken_to_the_last_byte() -> None:
    room = Capacity(records=9, size=10)
    assert room.take(np.array([4, 6, 1])) == 2
    assert (room.records, room.size) == (7, 0)
    assert room.take(np.array([1])) == 0
    assert Capacity(records=1, size=10).take(np.array([1, 1])) == 1
    assert Capacity(records=-3, size=10).take(np.array([1])) == 0


def test_who_can_never_fit_waits_for_an_empty_topic() -> None:
    room = Capacity(records=1, size=10, when_empty=20)
    assert (room.is_full(10), room.is_full(11), room.is_full(99)) == (False, True, True)
    assert not Capacity(records=1, size=20, when_empty=20).is_full(99)
    assert Capacity(records=0, size=20, when_empty=20).is_full(1)


@pytest.mark.parametrize(("cap_bytes", "left"), [(0, 7), (5, 2), (90, 7)])
def test_the_server_and_the_topic_bound_it_together(tmp_path: Path, cap_bytes: int, left: int) -> None:
    lab = RouterLab(tmp_path, max_total_bytes=10)
    lab.put("b", discard="reject", cap_bytes=cap_bytes, cap_records=3 if cap_bytes else 0)
    lab.write("b", 123)
    room = capacity_of(lab.engine, lab.topic("b"))
    assert (room.size, room.when_empty) == (left, min(cap_bytes or 10, 10))
    assert room.records == (2 if cap_bytes else MAX_SEQ - 1)


def test_metas_count() -> None:
    metas: list[bytes | None] = [None, b'{"m":1}']
    rows = Records(np.array([1, 2]), [b"123", b"4"], metas, (), None)
    copies = copies_of(rows, with_node=True, with_tag=True, stamp=None)
    assert copies.sizes.tolist() == [3, 8]
    assert copies.write.size == 11


def test_a_synced_destination_shows_copies_after_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    lab.routers.forward(lambda: False)
    assert lab.topic("b").head == 0
    lab.engine.queue.sync_now()
    assert lab.topic("b").head == 1
    assert lab.engine.counters.fsyncs == syncs + 1


def test_a_reader_of_a_synced_destination_waits_for_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    assert lab.data("b") == [1]
    assert lab.engine.counters.fsyncs == syncs + 1


def test_whoever_is_called_back_by_a_commit_does_not_overtake_it(lab: RouterLab) -> None:
    """A reader woken by a write asks for copies while another write of the same commit is still to come."""
    lab.put("a", cap_records=1)
    lab.route("r", "a", "b")
    lab.write_each("a", 3)
    lab.topic("a").listeners.append(lambda: lab.routers.pull(lab.topic("b")))
    answers: list[int] = []
    for name in ("a", "b"):
        body = b'{"records":[{"data":"together"}]}'
        append(lab.engine, name, body, lambda appended: answers.append(appended.head_seq), pytest.fail)
    lab.engine.queue.flush()
    assert answers == [4, 1]
    assert seqs_and_data(lab, "b") == [(1, "together"), (5, "together")]
    assert lab.topic("b").assigned == 5


@pytest.mark.parametrize(
    "meta",
    [
        b'{"k":1,"k":2.0}',
        b'{"k":"a\\nb","k":2.0}',
        b'{"k":"' + b"x" * 2000 + b'","k":2.0}',
    ],
    ids=["short", "with an escape", "long"],
)
def test_a_mark_is_put_behind_what_is_in_the_meta(meta: bytes) -> None:
    marked = stamped(meta, Stamp("r", "a", 7), 3)
    assert marked.startswith(meta[:-1] + b',"')
    assert json.loads(marked)[STAMP_KEY]["source_seq"] == 3


@pytest.mark.parametrize("key", ["_topics_router", "_topics\\u005frouter"])
@pytest.mark.parametrize("other", ["x", "x\\n"])
def test_a_mark_of_an_earlier_router_is_replaced(key: str, other: str) -> None:
    meta = f'{{"{key}":{{"source_seq":1}},"other":"{other}"}}'.encode()
    found = json.loads(stamped(meta, Stamp("r", "a", 7), 3), object_pairs_hook=list)
    assert sorted(name for name, _ in found) == [STAMP_KEY, "other"]
    assert dict(dict(found)[STAMP_KEY])["source_seq"] == 3
