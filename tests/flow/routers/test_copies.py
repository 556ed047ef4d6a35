"""What a router makes of records: the same content, with seqs and times of their own."""

from __future__ import annotations

import json

import pytest

from tests.flow.routers.lab import RouterLab
from tests.support.appending import append
from topics.flow.routers.copies import STAMP_KEY, stamped
from topics.flow.routers.frames import Stamp


def test_bytes_of_data_and_meta_are_not_touched(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    body = b'{"records":[{"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}]}'
    lab.commit(lambda done, fail: append(lab.engine, "a", body, done, fail))
    row = lab.diff("b").rows
    assert b'"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}' in row


def test_a_kept_tag_works_for_deletes_at_the_destination(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", {"data": 1, "tag": "t"}, {"data": 2, "tag": "u"})
    lab.records("b")
    assert lab.delete("b", match="t") == 1
    assert lab.data("b") == [2]
    assert lab.data("a") == [1, 2]


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
