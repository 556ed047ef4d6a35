"""Exactly once: the mark in a copy, and copies that are already there."""

from __future__ import annotations

from typing import Any

from tests.flow.routers.lab import RouterLab


def test_a_copy_carries_where_it_came_from(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", {"data": 1, "meta": {"k": 1}}, 2)
    epoch = lab.topic("a").id
    first, second = lab.records("b")
    assert list(first["meta"]) == ["k", "_topics_router"]
    assert first["meta"]["_topics_router"] == {
        "idempotency_key": f"router:r:{epoch}:{epoch}:1",
        "router": "r",
        "source_topic": "a",
        "source_topic_id": epoch,
        "source_epoch": epoch,
        "source_seq": 1,
    }
    assert second["meta"]["_topics_router"]["source_seq"] == 2
    lab.restart()
    assert lab.records("b") == [first, second]


def test_a_full_meta_is_wrapped(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    full = {f"key-{number}": number for number in range(64)}
    nearly = {f"key-{number}": number for number in range(63)}
    lab.write("a", {"data": 1, "meta": full}, {"data": 2, "meta": nearly}, {"data": 3, "meta": {}})
    first, second, third = (record["meta"] for record in lab.records("b"))
    assert set(first) == {"_topics_router", "_topics_original_meta"}
    assert first["_topics_original_meta"] == full
    assert second == nearly | {"_topics_router": second["_topics_router"]}
    assert set(third) == {"_topics_router"}


def test_the_next_router_writes_its_own_mark(lab: RouterLab) -> None:
    lab.route("ab", "a", "b", exactly_once=True)
    lab.route("bc", "b", "c", exactly_once=True)
    lab.write("a", {"data": 1, "meta": {"k": 1}})
    lab.background()
    [copy] = lab.records("c")
    assert copy["meta"]["_topics_router"]["router"] == "bc"
    assert copy["meta"]["k"] == 1
    assert lab.diff("c").rows.count(b"_topics_router") == 1


def key_of(lab: RouterLab, seq: int) -> dict[str, Any]:
    epoch = lab.topic("a").id
    return {"_topics_router": {"idempotency_key": f"router:r:{epoch}:{epoch}:{seq}"}}


def test_a_copy_that_is_already_there_is_not_repeated(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("b", {"data": "already", "meta": key_of(lab, 2)}, {"data": key_of(lab, 3)})
    lab.write("a", 1, 2, 3)
    assert lab.data("b") == ["already", key_of(lab, 3), 1, 3]
    assert lab.router("r").forwarded == 3
    assert lab.router("r").cursor == 3


def test_the_protection_ends_with_the_record(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("b", {"data": "already", "tag": "gone", "meta": key_of(lab, 1)})
    lab.restart()
    lab.delete("b", match="gone")
    lab.write("a", 1)
    assert lab.data("b") == [1]


def test_the_protection_survives_a_restart(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", 1)
    lab.records("b")
    lab.write("b", {"data": "already", "meta": key_of(lab, 2)})
    lab.checkpoint(everything=True)
    lab.restart()
    lab.write("a", 2, 3)
    assert lab.data("b") == [1, "already", 3]
