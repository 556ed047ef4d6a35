"""What a router makes of records: the same content, with seqs and times of their own."""

from __future__ import annotations

import json

import pytest

from tests.flow.routers.lab import RouterLab, seqs_and_data
from tests.support.appending import append
from topics.flow.routers.copies import STAMP_KEY, stamped
from topics.flow.routers.frames import Stamp


def test_nothing_older_than_the_router_is_copied(lab: RouterLab) -> None:
    lab.write_each("a", 50)
    lab.route("r", "a", "b")
    assert lab.records("b") == []
    lab.write("a", "new")
    assert seqs_and_data(lab, "b") == [(1, "new")]
    assert lab.router("r").forwarded == 1


def test_a_copy_keeps_its_content_and_gets_seq_and_time_of_its_own(lab: RouterLab) -> None:
    lab.write("b", "here before")
    lab.route("r", "a", "b")
    lab.write("a", {"data": {"n": 1.50}, "tag": "t", "node": "n1", "meta": {"k": [1, 2]}}, "plain")
    lab.clock.advance(500)
    copies = lab.records("b")[1:]
    now = lab.clock.now_ms()
    assert copies == [
        {"$seq": 2, "$ts": now, "$node": "n1", "$tag": "t", "data": {"n": 1.5}, "meta": {"k": [1, 2]}},
        {"$seq": 3, "$ts": now, "data": "plain"},
    ]


def test_bytes_of_data_and_meta_are_not_touched(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    body = b'{"records":[{"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}]}'
    lab.commit(lambda done, fail: append(lab.engine, "a", body, done, fail))
    row = lab.diff("b").rows
    assert b'"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}' in row


def test_node_and_tag_can_be_left_behind(lab: RouterLab) -> None:
    lab.route("r", "a", "b", preserve_node=False, preserve_tag=False)
    lab.write("a", {"data": 1, "tag": "t", "node": "n"})
    [copy] = lab.records("b")
    assert set(copy) == {"$seq", "$ts", "data"}
    assert lab.delete("b", match="t") == 0


def test_a_kept_tag_works_for_deletes_at_the_destination(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", {"data": 1, "tag": "t"}, {"data": 2, "tag": "u"})
    lab.records("b")
    assert lab.delete("b", match="t") == 1
    assert lab.data("b") == [2]
    assert lab.data("a") == [1, 2]


def test_the_filter_passes_matching_tags_only(lab: RouterLab) -> None:
    lab.route("exact", "a", "b", match="x")
    lab.route("prefix", "a", "c", match=["tag", "Glob", "x*"])
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2, "tag": "xy"}, {"data": 3, "tag": "y"}, {"data": 4})
    lab.write("a", {"data": 5, "tag": "x"})
    assert seqs_and_data(lab, "b") == [(1, 1), (2, 5)]
    assert seqs_and_data(lab, "c") == [(1, 1), (2, 2), (3, 5)]
    assert lab.router("exact").forwarded == 2
    assert lab.router("exact").cursor == 5


def test_changing_the_filter_keeps_the_position(lab: RouterLab) -> None:
    lab.route("r", "a", "b", match="x")
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2, "tag": "y"})
    assert not lab.route("r", "a", "b", match="y")
    lab.write("a", {"data": 3, "tag": "x"}, {"data": 4, "tag": "y"})
    assert lab.data("b") == [1, 4]
    lab.restart()
    assert lab.data("b") == [1, 4]
    lab.write("a", {"data": 5, "tag": "x"}, {"data": 6, "tag": "y"})
    assert lab.data("b") == [1, 4, 6]


def test_deleted_records_are_passed_over_in_silence(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2}, {"data": 3, "tag": "x"})
    lab.delete("a", match="x")
    assert seqs_and_data(lab, "b") == [(1, 2)]
    assert lab.gaps("b") == []
    assert lab.router("r").forwarded == 1


def test_direct_writes_and_copies_share_the_seqs(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", "copy 1")
    lab.records("b")
    lab.write("b", "direct")
    lab.write("a", "copy 2")
    assert seqs_and_data(lab, "b") == [(1, "copy 1"), (2, "direct"), (3, "copy 2")]


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


def test_a_router_is_behind_until_it_has_seen_the_last_record(lab: RouterLab) -> None:
    lab.pulls = False
    lab.route("r", "a", "b")
    lab.write("a", 1)
    router = lab.routers.find("r")
    assert router is not None
    assert router.is_behind
    lab.background()
    assert not router.is_behind
