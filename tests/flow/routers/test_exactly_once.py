"""Exactly once: the mark in a copy, and copies that are already there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from tests.support.appending import append
from topics.flow.routers import copies as exactly_once


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


def test_the_protection_survives_a_restart(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", 1)
    lab.records("b")
    lab.write("b", {"data": "already", "meta": key_of(lab, 2)})
    lab.checkpoint(everything=True)
    lab.restart()
    lab.write("a", 2, 3)
    assert lab.data("b") == [1, "already", 3]


def test_a_key_is_found_however_it_is_written(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", 0)
    lab.records("b")
    text = json.dumps(key_of(lab, 2))
    spelled = text.replace("router:", "\\u0072outer:").replace("idem", "\\u0069dem")
    body = (
        f'{{"records": [{{"data": "already", "meta": {spelled}}}, {{"data": 1, "meta": {{"\\u0061": 2}}}}]}}'
    )
    lab.commit(lambda done, fail: append(lab.engine, "b", body.encode(), done, fail))
    lab.write("a", 2)
    assert lab.data("b") == [0, "already", 1]


class Decodes:
    """Counts how often a meta is decoded, and how many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.bytes = 0
        self._decode = exactly_once._meta.decode
        monkeypatch.setattr(exactly_once, "_meta", self)

    def decode(self, meta: bytes) -> Any:
        self.count += 1
        self.bytes += len(meta)
        return self._decode(meta)


def test_a_row_is_decoded_once_however_often_the_key_is_in_it(
    lab: RouterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write of 1 MB with the key's text in it 17,000 times held the server for 104 seconds."""
    lab.route("r", "a", "b", exactly_once=True)
    epoch = lab.topic("a").id
    text = f'"idempotency_key":"router:r:{epoch}:{epoch}:1"'
    data = [{"idempotency_key": f"router:r:{epoch}:{epoch}:{n}"} for n in range(1, 20_000)]
    meta = {"many": [text] * 200}
    for _ in range(16):
        lab.write("b", {"data": data, "meta": meta})
    decodes = Decodes(monkeypatch)
    lab.write("a", 1)
    assert lab.data("b")[-1] == 1
    assert lab.topic("b").live_bytes > 12_000_000
    assert decodes.count == 16
    # None of the data is looked into.
    assert decodes.bytes < 16 * 20_000


def test_keys_for_records_to_come_are_bounded(lab: RouterLab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exactly_once.MAX_KEYS == 131_072
    monkeypatch.setattr(exactly_once, "MAX_KEYS", 64)
    monkeypatch.setattr(exactly_once, "_FEW_KEYS", 8)
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("b", *({"data": seq, "meta": key_of(lab, seq)} for seq in range(2, 402)))
    lab.write("a", 1)
    assert lab.data("b")[-1] == 1
    # The nearest ones are kept: those are forwarded next.
    assert set(range(2, 34)) <= lab.router("r").keys_seen.keys()
    assert len(lab.router("r").keys_seen) <= 64
    lab.write("a", *range(2, 12))
    assert len(lab.records("b")) == 401
    assert lab.router("r").forwarded == 11


def test_a_copy_that_is_on_its_way_to_disk_is_not_repeated(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b", exactly_once=True)
    body = json.dumps({"records": [{"data": 0}, {"data": "already", "meta": key_of(lab, 1)}]})
    append(lab.engine, "b", body.encode(), lambda _: None, pytest.fail)
    lab.engine.queue.flush()
    assert lab.topic("b").head == 0
    router = lab.routers.find("r")
    assert router is not None
    exactly_once.find_foreign_keys(router.dest, router)
    assert exactly_once.known_copies(router, [1, 2]) == {1}
    lab.write("a", 1, 2)
    assert lab.data("b") == [0, "already", 2]
