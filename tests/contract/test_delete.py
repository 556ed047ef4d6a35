"""Deleting records: the selector grammar, what goes, what stays, and what readers notice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.server import Server, TopicHandle, in_parallel

TAGS = ["a", "ab", "a*b", "a*bc", "a*", "*", "b", "A", "é", "éa", "", None]


def tagged(topic: TopicHandle) -> TopicHandle:
    topic.records(*[{"data": tag, "tag": tag} for tag in TAGS])
    return topic


def left(topic: TopicHandle) -> list[Any]:
    return [record["data"] for record in topic.diff()["records"]]


def test_the_answer(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write("a", "bb", "ccc")
    body = topic.delete(before_seq=3)
    del body["performance"]
    assert body == {
        "topic": topic.name,
        "deleted": 2,
        "earliest_seq": 3,
        "head_seq": 3,
        "count": 1,
        "bytes": 5,
        "dry_run": False,
    }
    again = topic.delete(before_seq=3)
    assert (again["deleted"], again["count"], again["bytes"]) == (0, 1, 5)
    assert topic.state()["count"] == 1


@pytest.mark.parametrize("before", [0, 1])
def test_nothing_is_below_the_first_seq(new_topic: NewTopic, before: int) -> None:
    topic = new_topic()
    topic.fill(2)
    assert topic.delete(before_seq=before)["deleted"] == 0
    assert topic.seqs() == [1, 2]


@pytest.mark.parametrize("before", [6, 1000, 2**63, 2**64 - 1])
def test_the_bound_is_the_head_of_the_moment(new_topic: NewTopic, before: int) -> None:
    topic = new_topic()
    topic.fill(5)
    body = topic.delete(before_seq=before)
    assert (body["deleted"], body["earliest_seq"], body["count"], body["bytes"]) == (5, 6, 0, 0)
    topic.fill(1)
    assert topic.seqs() == [6]
    assert topic.state()["earliest_seq"] == 6


@pytest.mark.parametrize(
    ("match", "gone"),
    [
        ("a", {"a"}),
        (["tag", "Eq", "a"], {"a"}),
        (["tag", "Eq", "a*"], {"a*"}),
        ("a*", {"a", "ab", "a*b", "a*bc", "a*"}),
        (["tag", "Glob", "a*"], {"a", "ab", "a*b", "a*bc", "a*"}),
        ("a*b*", {"a*b", "a*bc"}),
        (["tag", "Glob", "a*b*"], {"a*b", "a*bc"}),
        ("a**", {"a*b", "a*bc", "a*"}),
        ("**", {"*"}),
        ("*", {tag for tag in TAGS if tag is not None}),
        (["tag", "Glob", "*"], {tag for tag in TAGS if tag is not None}),
        (["tag", "Eq", "*"], {"*"}),
        ("é*", {"é", "éa"}),
        ("", {""}),
        ("nobody", set()),
        ("z*", set()),
        ("[ab]", set()),
        ("?", set()),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else repr(value),
)
def test_matching(new_topic: NewTopic, match: Any, gone: set[str]) -> None:
    topic = tagged(new_topic())
    body = topic.delete(match=match)
    assert body["deleted"] == len(gone)
    assert body["count"] == len(TAGS) - len(gone)
    assert left(topic) == [tag for tag in TAGS if tag not in gone]
    assert topic.diff()["tombstone"] is None
    assert topic.delete(match=match)["deleted"] == 0


@pytest.mark.parametrize(
    "match",
    [
        *([], ["tag"], ["tag", "Eq"], ["tag", "Eq", "a", "b"], ["node", "Eq", "a"], ["Tag", "Eq", "a"]),
        *(
            ["tag", "eq", "a"],
            ["tag", "EQ", "a"],
            ["tag", "glob", "a*"],
            ["tag", "In", "a"],
            ["tag", "", "a"],
        ),
        *(
            ["tag", "Glob", "a"],
            ["tag", "Glob", ""],
            ["tag", "Glob", "*a"],
            ["tag", "Eq", 1],
            ["tag", 1, "a"],
        ),
        *([1, "Eq", "a"], ["tag", "Eq", None], ["tag", "Eq", ["a"]], 1, True, {}, {"tag": "a"}),
    ],
    ids=repr,
)
def test_predicates_outside_the_grammar(new_topic: NewTopic, match: Any) -> None:
    topic = tagged(new_topic())
    topic.ask_delete({"match": match}).refused(400, "invalid_request")
    topic.ask_delete({"match": match, "before_seq": 2}).refused(400, "invalid_request")
    assert len(left(topic)) == len(TAGS)


def test_one_selector_at_least(new_topic: NewTopic, unborn: TopicHandle) -> None:
    for selector in (
        {},
        {"match": None},
        {"before_seq": None},
        {"match": None, "before_seq": None},
        {"other": 1},
    ):
        new_topic().ask_delete(selector).refused(400, "invalid_request")
        unborn.ask_delete(selector).refused(400, "invalid_request")
    topic = tagged(new_topic())
    assert topic.delete(match="a", before_seq=None)["deleted"] == 1
    assert topic.delete(match=None, before_seq=3)["deleted"] == 1


def test_both_selectors_together(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records(*[{"data": n, "tag": tag} for n, tag in enumerate(["x", "y", "x", "x"], start=1)])
    body = topic.delete(before_seq=3, match="x")
    assert (body["deleted"], body["earliest_seq"]) == (1, 2)
    assert left(topic) == [2, 3, 4]
    # The prefix marker did not move: what it would have covered is still there.
    body = topic.delete(before_seq=4, match="x")
    assert (body["deleted"], body["earliest_seq"]) == (1, 2)
    assert left(topic) == [2, 4]
    assert topic.delete(before_seq=1000, match="y")["deleted"] == 1
    topic.records({"data": 5, "tag": "y"})
    assert left(topic) == [4, 5]


def test_later_records_with_a_matching_tag_are_untouched(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "tag": "u:1"})
    topic.delete(match="u:*")
    topic.records({"data": 2, "tag": "u:1"})
    assert left(topic) == [2]


def test_deleted_is_the_drop_in_count(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=6)
    topic.records(*[{"data": n, "tag": f"{n % 2}"} for n in range(10)])
    before = topic.state()["count"]
    body = topic.delete(match="0")
    assert body["deleted"] == before - body["count"] == 3
    body = topic.delete(before_seq=100)
    assert (body["deleted"], body["count"]) == (3, 0)


def test_evicted_records_leave_the_tag_index(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    topic.records(*[{"data": n, "tag": "t"} for n in range(5)])
    assert topic.delete(match="t")["deleted"] == 2


def test_deleting_from_many_batches(new_topic: NewTopic) -> None:
    topic = new_topic()
    for start in range(0, 1000, 100):
        topic.records(*[{"data": n, "tag": f"user-{n % 10}:{n}"} for n in range(start, start + 100)])
    assert topic.delete(match="user-3:*")["deleted"] == 100
    assert topic.delete(match="user-4:*", before_seq=501)["deleted"] == 50
    records, gaps = topic.drain(limit=77)
    expected = [n for n in range(1000) if n % 10 != 3 and not (n % 10 == 4 and n + 1 < 501)]
    assert [record["data"] for record in records] == expected
    assert gaps == []
    assert topic.state()["count"] == 850
    assert topic.state()["bytes"] == sum(len(str(n)) for n in expected)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "fsync"])
def test_deleting_in_every_class(new_topic: NewTopic, durability: str) -> None:
    topic = tagged(new_topic(durability=durability))
    assert topic.delete(match="a*")["deleted"] == 5
    assert topic.delete(before_seq=7)["deleted"] == 1
    assert left(topic) == ["b", "A", "é", "éa", "", None]


def test_deletes_among_concurrent_writes_remove_what_they_say(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic(durability="fsync")
    written: list[int] = []
    removed: list[int] = []

    def write() -> None:
        client = server.client()
        for _ in range(40):
            answer = client.send("POST", topic.path, {"records": [{"data": 1, "tag": "t"}] * 3}).ok()
            written.extend(answer["seqs"])
        client.close()

    def delete() -> None:
        client = server.client()
        path = topic.path + "/delete"
        removed.extend(client.send("POST", path, {"match": "t"}).ok()["deleted"] for _ in range(30))
        client.close()

    in_parallel(write, write, delete)
    assert sorted(written) == list(range(1, 241))
    assert sum(removed) + topic.state()["count"] == 240
    records, gaps = topic.drain()
    assert len(records) == topic.state()["count"]
    assert gaps == []
