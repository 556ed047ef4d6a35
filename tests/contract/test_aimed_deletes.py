"""Deletes that are looked at first (dry runs), or aimed at seqs; dropping a topic can be looked at, too."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import as_queue
from tests.contract.routers import route
from tests.contract.server import Server, TopicHandle

U64_MAX = 2**64 - 1


def tagged(topic: TopicHandle, count: int = 10) -> TopicHandle:
    """Odd seqs carry the tag `odd`, even ones `even:<seq>`."""
    topic.records(*({"data": n, "tag": "odd" if n % 2 else f"even:{n}"} for n in range(1, count + 1)))
    return topic


# --- by seqs ----------------------------------------------------------------------------------------------


def test_exactly_the_named_seqs_go(new_topic: NewTopic) -> None:
    topic = tagged(new_topic())
    answer = topic.delete(seqs=[9, 3, 3, 1, 400, U64_MAX, 0])
    assert (answer["deleted"], answer["count"], answer["earliest_seq"]) == (3, 7, 2)
    assert topic.seqs() == [2, 4, 5, 6, 7, 8, 10]
    assert topic.delete(seqs=[9, 3, 1])["deleted"] == 0
    assert topic.diff()["tombstone"] is None


@pytest.mark.parametrize(
    ("selectors", "gone"),
    [
        ({"seqs": [2, 5, 9], "before_seq": 9}, [2, 5]),
        ({"seqs": [2, 5, 9], "match": "odd"}, [5, 9]),
        ({"seqs": [2, 5, 8], "match": "even:*"}, [2, 8]),
        ({"seqs": [1, 2, 5, 8, 9], "match": "odd", "before_seq": 9}, [1, 5]),
        ({"seqs": [1, 2], "match": "absent"}, []),
        ({"seqs": [1, 2], "before_seq": 0}, []),
    ],
)
def test_selectors_are_anded(new_topic: NewTopic, selectors: dict[str, Any], gone: list[int]) -> None:
    topic = tagged(new_topic())
    assert topic.delete(**selectors, dry_run=True)["deleted"] == len(gone)
    assert topic.delete(**selectors)["deleted"] == len(gone)
    assert topic.seqs() == [seq for seq in range(1, 11) if seq not in gone]


@pytest.mark.parametrize(
    "seqs", [[], None, 3, "3", {"3": 3}, [1.5], ["3"], [None], [-1], [2**64], [True]], ids=repr
)
def test_seqs_of_another_kind(new_topic: NewTopic, unborn: TopicHandle, seqs: Any) -> None:
    topic = tagged(new_topic())
    for target in (topic, unborn):
        target.ask_delete({"seqs": seqs}).refused(400, "invalid_request")
        target.ask_delete({"seqs": seqs, "before_seq": 5}).refused(400, "invalid_request")
    assert topic.state()["count"] == 10


def test_at_most_a_thousand_seqs(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(5)
    detail = topic.ask_delete({"seqs": list(range(1, 1002))}).refused(400, "invalid_request")
    assert detail == {"max": 1000, "seqs": 1001}
    assert topic.delete(seqs=list(range(1, 1001)))["deleted"] == 5


def test_seqs_of_an_absent_topic(unborn: TopicHandle) -> None:
    unborn.ask_delete({"seqs": [1]}).refused(404, "topic_not_found")
    unborn.ask_delete({"seqs": [1], "dry_run": True}).refused(404, "topic_not_found")


@pytest.mark.parametrize("cleanly", [True, False])
def test_they_stay_gone_after_a_restart(boot: Boot, cleanly: bool) -> None:
    server = boot(TOPICS_SEGMENT_MAX_EVENTS="3", TOPICS_HOT_BYTES="1")
    topics = [tagged(server.topic(name, durability=name)) for name in ("memory", "disk", "fsync")]
    for topic in topics:
        topic.delete(seqs=[1, 4, 10])
        topic.delete(seqs=[2, 3, 5], match="odd")
        topic.fill(1)
    states = [topic.state() for topic in topics]
    server.restart(cleanly=cleanly)
    for topic, state in zip(topics, states, strict=True):
        assert topic.seqs() == [2, 6, 7, 8, 9, 11]
        for key in ("count", "bytes", "earliest_seq", "head_seq"):
            assert topic.state()[key] == state[key]


def test_jobs_that_are_deleted_leave_their_leases(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.fill(6)
    assert queue.claimed(3) == [1, 2, 3]
    assert queue.delete(seqs=[2, 5], dry_run=True)["deleted"] == 2
    assert queue.counters() == (3, 3)
    assert queue.delete(seqs=[2, 5])["deleted"] == 2
    assert queue.counters() == (2, 2)
    assert queue.do("ack", 1, 2, 3)["skipped"] == [2]
    assert queue.claimed(9) == [4, 6]


# --- dry runs ---------------------------------------------------------------------------------------------

SELECTORS: list[dict[str, Any]] = [
    {"before_seq": 1},
    {"before_seq": 4},
    {"before_seq": 1000},
    {"match": "odd"},
    {"match": "even:*"},
    {"match": "*", "before_seq": 6},
    {"seqs": [1, 2, 3]},
    {"seqs": [10, 4, 77]},
    {"seqs": list(range(1, 11))},
]


def told(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in ("performance", "dry_run")}


@pytest.mark.parametrize("selectors", SELECTORS, ids=str)
def test_a_dry_run_says_what_the_delete_then_does(new_topic: NewTopic, selectors: dict[str, Any]) -> None:
    topic = tagged(new_topic())
    topic.delete(seqs=[2, 7])
    before, page = topic.state(), topic.diff()
    dry = topic.delete(**selectors, dry_run=True)
    assert dry["dry_run"] is True
    assert topic.diff()["records"] == page["records"]
    after = topic.state()
    assert [after[key] for key in ("count", "bytes", "earliest_seq", "head_seq", "config")] == [
        before[key] for key in ("count", "bytes", "earliest_seq", "head_seq", "config")
    ]
    real = topic.delete(**selectors, dry_run=False)
    assert real["dry_run"] is False
    assert told(dry) == told(real)
    assert real["count"] == topic.state()["count"]


def test_random_dry_runs_over_files_and_memory(boot: Boot) -> None:
    server = boot(TOPICS_SEGMENT_MAX_EVENTS="4", TOPICS_HOT_BYTES="1")
    draw = random.Random(14)
    topic = tagged(server.topic("t"), 60)
    for step in range(24):
        selectors: dict[str, Any] = {}
        if draw.random() < 0.5:
            selectors["seqs"] = draw.choices(range(1, 70), k=draw.randint(1, 12))
        if draw.random() < 0.4:
            selectors["match"] = draw.choice(["odd", "even:1*", "even:*", "even:12"])
        if not selectors or draw.random() < 0.3:
            selectors["before_seq"] = topic.state()["earliest_seq"] + draw.randint(0, 9)
        dry = topic.delete(**selectors, dry_run=True)
        assert told(dry) == told(topic.delete(**selectors)), selectors
        topic.records({"data": "more", "tag": draw.choice(["odd", "even:12"])})
        if step % 10 == 5:
            server.restart(cleanly=step > 10)


def test_a_dry_run_is_not_a_read(new_topic: NewTopic) -> None:
    topic = tagged(new_topic())
    assert topic.delete(before_seq=5, dry_run=True)["deleted"] == 4
    assert topic.state()["last_read_ts"] is None


@pytest.mark.parametrize("value", [None, 1, "true", [], {}], ids=repr)
def test_dry_run_is_true_or_false(new_topic: NewTopic, value: Any) -> None:
    topic = tagged(new_topic())
    topic.ask_delete({"before_seq": 5, "dry_run": value}).refused(400, "invalid_request")
    assert topic.state()["count"] == 10


def test_a_dry_run_needs_the_scope_of_the_delete(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="root,reader:rw")
    dry = {"before_seq": 9, "dry_run": True}
    with closing(server.client("root")) as root, closing(server.client("reader")) as reader:
        root.send("POST", "/v0/topics/t", {"records": [{"data": 1}]}).ok(201)
        reader.send("POST", "/v0/topics/t/delete", dry).refused(403, "forbidden")
        reader.send("DELETE", "/v0/topics/t?dry_run=true").refused(403, "forbidden")
        assert root.send("POST", "/v0/topics/t/delete", dry).ok()["deleted"] == 1


def test_a_dry_run_of_dropping_a_topic(server: Server, new_topic: NewTopic) -> None:
    source, dest = tagged(new_topic()), new_topic()
    router = route(source, dest)
    state = source.state()
    body = server.send("DELETE", f"{source.path}?dry_run=true").ok()
    del body["performance"]
    assert body == {
        "topic": source.name,
        "deleted": False,
        "routers_removed": [router],
        "count": 10,
        "bytes": state["bytes"],
        "dry_run": True,
    }
    assert source.state()["count"] == 10
    server.send("DELETE", f"{source.path}?dry_run=1&if_empty=true").refused(409, "topic_not_empty")
    server.send("DELETE", f"{source.path}?dry_run=yes").refused(400, "invalid_request")
    server.send("DELETE", f"{source.path}?dry_run").refused(400, "invalid_request")
    assert source.state()["count"] == 10
    body = server.send("DELETE", f"{source.path}?dry_run=false").ok()
    assert (body["deleted"], body["routers_removed"]) == (True, [router])


def test_a_dry_run_of_dropping_nothing(server: Server, unborn: TopicHandle) -> None:
    body = server.send("DELETE", f"{unborn.path}?dry_run=true").ok()
    del body["performance"]
    assert body == {
        "topic": unborn.name,
        "deleted": False,
        "routers_removed": [],
        "count": 0,
        "bytes": 0,
        "dry_run": True,
    }
