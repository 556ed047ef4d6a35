"""Destinations that are full: what waits, and what goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flow.routers.lab import RouterLab
from topics.core.settings import MAX_SEQ
from topics.flow.routers.copies import copies_of
from topics.flow.routers.step import Capacity, capacity_of
from topics.storage import Records


def test_later_records_wait_behind_one_that_is_too_large_for_now(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_bytes=100)
    lab.route("r", "a", "b")
    lab.write("a", "x" * 58, "y" * 58, "z")
    assert lab.data("b") == ["x" * 58]
    lab.delete("b", before=2)
    assert lab.data("b") == ["y" * 58, "z"]


def test_the_background_pass_goes_on_when_there_is_room(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1)
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    lab.background()
    assert lab.topic("b").head == 1
    assert lab.routers.stuck
    lab.delete("b", before=2)
    lab.background()
    assert lab.topic("b").head == 2
    assert not lab.routers.stuck


def test_time_makes_room_as_well(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1, ttl_ms=1000)
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    assert lab.data("b") == [1]
    lab.clock.advance(1001)
    assert lab.data("b") == [2]


def test_one_blocked_router_does_not_hold_up_the_others(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1)
    lab.route("blocked", "a", "b")
    lab.route("free", "a", "c")
    lab.write_each("a", 20)
    lab.background()
    assert (lab.topic("b").head, lab.topic("c").head) == (1, 20)


def test_the_byte_quota_of_the_server_holds_for_copies(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_total_bytes=10)
    lab.route("r", "a", "b")
    lab.write("a", "aa", "bb")
    assert lab.data("b") == []
    lab.delete("a", before=2)
    assert lab.data("b") == ["bb"]
    assert lab.engine.totals.bytes <= 10


def test_time_at_the_destination_counts_from_the_copy(lab: RouterLab) -> None:
    lab.put("b", ttl_ms=1000)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.clock.advance(900)
    assert lab.data("b") == [1]
    lab.clock.advance(1000)
    assert lab.data("b") == [1]
    lab.clock.advance(1)
    assert lab.data("b") == []


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
    rows = Records(np.array([1, 2]), [b"123", b"4"], metas, None, None, None)
    copies = copies_of(rows, with_node=True, with_tag=True, stamp=None)
    assert copies.sizes.tolist() == [3, 8]
    assert copies.write.size == 11
