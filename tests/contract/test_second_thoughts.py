"""What a put may say beyond yes: it is there already (412), or it will not do what you expect (warnings)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.queues import as_queue
from tests.contract.routers import route
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.support import Answer

ONLY_NEW = {"If-None-Match": "*"}


def put(server: Server, path: str, body: Any = None, **headers: str) -> Answer:
    return server.send("PUT", path, {} if body is None else body, **headers)


# --- If-None-Match: * -------------------------------------------------------------------------------------


def test_a_topic_that_is_there_stays_as_it_is(server: Server, unborn: TopicHandle) -> None:
    body = put(server, unborn.path, {"cap_records": 7}, **ONLY_NEW).ok(201)
    assert body["created"] is True
    for config in ({"cap_records": 3}, {"type": "queue"}, {}):
        detail = put(server, unborn.path, config, **ONLY_NEW).refused(412, "topic_exists")
        assert detail == {"topic": unborn.name}
    put(server, unborn.path, {"cap_records": "x"}, **ONLY_NEW).refused(400, "invalid_request")
    assert unborn.state()["config"]["cap_records"] == 7
    # Anything else in that header names a version, and topics have none: the put goes through.
    assert put(server, unborn.path, {"cap_records": 5}, **{"If-None-Match": '"x"'}).ok()["created"] is False
    unborn.drop()
    assert put(server, unborn.path, **ONLY_NEW).ok(201)["created"] is True


def test_an_empty_body_may_say_so_too(server: Server, unborn: TopicHandle) -> None:
    assert server.send("PUT", unborn.path, None, **ONLY_NEW).ok(201)["created"] is True
    server.send("PUT", unborn.path, None, **ONLY_NEW).refused(412, "topic_exists")


def test_of_many_that_want_to_be_first_one_is(server: Server, unborn: TopicHandle) -> None:
    statuses: list[int] = []

    def race() -> None:
        client = server.client()
        statuses.append(client.send("PUT", unborn.path, {"durability": "fsync"}, **ONLY_NEW).status)
        client.close()

    in_parallel(*[race] * 8)
    assert sorted(statuses) == [201] + [412] * 7


def test_a_router_that_is_there_stays_as_it_is(server: Server, new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest)
    body = {"source": source.name, "dest": dest.name, "preserve_tag": False}
    detail = put(server, f"/v0/routers/{name}", body, **ONLY_NEW).refused(412, "router_exists")
    assert detail == {"router": name}
    assert server.send("GET", f"/v0/routers/{name}").ok()["preserve_tag"] is True
    assert put(server, f"/v0/routers/{name}", body).ok()["created"] is False
    server.send("DELETE", f"/v0/routers/{name}").ok()
    assert put(server, f"/v0/routers/{name}", body, **ONLY_NEW).ok(201)["created"] is True


# --- warnings ---------------------------------------------------------------------------------------------


def warned(topic: TopicHandle, **config: Any) -> list[str]:
    """Sentences of the answer to a put; the config is as it was asked for all the same."""
    answer = topic.put(**config)
    assert all(answer["config"][name] == value for name, value in config.items())
    warnings: list[str] = answer.get("warnings", [])
    assert all(sentence[-1] == "." for sentence in warnings)
    return warnings


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"type": "queue", "max_deliveries": 3}, ("max_deliveries", "dead_letter")),
        ({"type": "queue", "dead_letter": "graveyard"}, ("dead_letter", "max_deliveries")),
        ({"lease_ms": 5000}, ("lease_ms",)),
        ({"max_deliveries": 3}, ("max_deliveries",)),
        ({"leases_durable": True}, ("leases_durable",)),
        ({"type": "queue", "ttl_ms": 1000}, ("ttl_ms", "lease_ms")),
        ({"discard": "reject"}, ("discard", "cap_records", "cap_bytes")),
    ],
)
def test_a_config_without_the_effect_its_writer_expects(
    unborn: TopicHandle, config: dict[str, Any], named: tuple[str, ...]
) -> None:
    for _ in range(2):
        (sentence,) = warned(unborn, **config)
        assert all(name in sentence for name in named)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"type": "queue"},
        {"type": "queue", "max_deliveries": 3, "dead_letter": "graveyard"},
        {"type": "queue", "ttl_ms": 30_000},
        {"ttl_ms": 5},
        {"lease_ms": 30_000},
        {"cap_records": 3},
        {"discard": "reject", "cap_bytes": 9},
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_say(unborn: TopicHandle, config: dict[str, Any]) -> None:
    assert "warnings" not in unborn.put(**config)
    assert "warnings" not in unborn.put(**unborn.state()["config"])


def test_a_cap_below_what_is_live_says_how_many_go(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(10)
    (sentence,) = warned(topic, cap_records=3)
    assert "cap_records" in sentence
    assert "7 records" in sentence
    assert warned(topic, cap_records=3) == []
    (sentence,) = warned(topic, cap_bytes=2)
    assert "cap_bytes" in sentence
    assert "1 record " in sentence
    assert topic.state()["count"] == 2


def test_several_things_to_say(new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.fill(4)
    sentences = warned(queue, type="queue", max_deliveries=2, ttl_ms=20_000, cap_records=1)
    assert [any(name in s for s in sentences) for name in ("max_deliveries", "ttl_ms", "cap_records")] == [
        True,
        True,
        True,
    ]
    assert len(sentences) == 3


# --- details ----------------------------------------------------------------------------------------------


def test_a_bad_dead_letter_is_named(server: Server, unborn: TopicHandle) -> None:
    for name in ("-x", "", unborn.name):
        body = {"type": "queue", "dead_letter": name}
        assert put(server, unborn.path, body).refused(400, "invalid_request") == {"dead_letter": name}
        detail = unborn.post({"records": [{"data": 1}], "config": body}).refused(400, "invalid_request")
        assert detail == {"dead_letter": name}


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_too_many_seqs_are_counted(new_topic: NewTopic, verb: str) -> None:
    queue = as_queue(new_topic(type="queue"))
    body = {"node": "w", "seqs": list(range(1002))} | ({"lease_ms": 5000} if verb == "extend" else {})
    assert queue.ask(verb, body).refused(400, "batch_too_large") == {"max": 1000, "seqs": 1002}


def test_more_than_a_thousand_nodes(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(1)
    nodes = [f"node-{n}" for n in range(1001)]
    topic.ask_diff(node=nodes).refused(400, "invalid_request")
    assert len(topic.ask_diff(node=nodes[1:]).ok()["records"]) == 1
    watch = {"topics": {topic.name: {}}, "node": nodes}
    server.send("POST", "/v0/watch", watch).refused(400, "invalid_request")
    server.send("POST", "/v0/watch", watch | {"node": nodes[1:]}).ok()


# --- what it would cost -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "removes"),
    [
        ({}, 0),
        ({"cap_records": 8}, 0),
        ({"cap_records": 5}, 3),
        ({"cap_bytes": 8}, 0),
        ({"cap_bytes": 5}, 3),
        ({"cap_bytes": 5, "cap_records": 2}, 6),
        ({"ttl_ms": 1}, 8),
        ({"ttl_ms": 86_400_000}, 0),
    ],
    ids=str,
)
def test_a_dry_run_says_how_many_records_would_go(
    new_topic: NewTopic, config: dict[str, Any], removes: int
) -> None:
    topic = new_topic()
    topic.write(*range(10))
    topic.server.send("POST", f"{topic.path}/delete", {"seqs": [2, 6]}).ok()
    if "ttl_ms" in config:
        time.sleep(0.01)
    before = topic.state()
    answer = topic.server.send("PUT", f"{topic.path}?dry_run=true", config).ok()
    assert (answer["dry_run"], answer["created"], answer["removes"]) == (True, False, removes)
    same = ("count", "bytes", "config", "earliest_seq")
    assert {name: topic.state()[name] for name in same} == {name: before[name] for name in same}
    topic.server.send("PUT", topic.path, config).ok()
    assert topic.state()["count"] == 8 - removes


def test_a_dry_run_makes_no_topic_and_refuses_what_would_be_refused(server: Server) -> None:
    path = "/v0/topics/not-made"
    assert server.send("PUT", f"{path}?dry_run=true", {"cap_records": 3}).ok()["removes"] == 0
    server.send("GET", path).refused(404, "topic_not_found")
    server.send("PUT", f"{path}?dry_run=perhaps", {}).refused(400, "invalid_request")
    server.send("PUT", f"{path}?dry_run=true", {"cap_record": 3}).refused(400, "invalid_request")
    server.send("PUT", path, {"type": "queue"}).ok(201)
    server.send("PUT", f"{path}?dry_run=true", {}).refused(409, "topic_exists_incompatible")
