"""Topics themselves: config, state, lists, names, deletion and rebirth."""

from __future__ import annotations

import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle, in_parallel

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}
OTHER: dict[str, Any] = {
    "ttl_ms": 86_400_000,
    "cap_records": 2500,
    "cap_bytes": 1_000_000,
    "discard": "reject",
    "durability": "fsync",
    "priority": -40,
    "auto_priority": False,
    "auto_create": False,
    "idempotency_window_ms": 5,
    "dedupe_node": False,
    "lease_ms": 45_000,
    "claim_jitter_ms": 25,
    "max_deliveries": 4,
    "dead_letter": "kiln-cracked",
    "leases_durable": True,
}


# Config


def test_the_first_put_creates_and_later_ones_update(server: Server, unborn: TopicHandle) -> None:
    first = server.send("PUT", unborn.path, {}).ok(201)
    assert set(first) == {"topic", "created", "config", "performance"}
    assert first["topic"] == unborn.name
    assert first["created"] is True
    assert first["config"] == DEFAULTS
    second = server.send("PUT", unborn.path, {}).ok(200)
    assert second["created"] is False
    assert second["config"] == DEFAULTS


def test_every_field_is_stored_and_echoed_even_queue_fields_on_a_log(new_topic: NewTopic) -> None:
    topic = new_topic()
    expected = DEFAULTS | OTHER | {"durable": True}
    assert topic.put(**OTHER)["config"] == expected
    assert topic.state()["config"] == expected


def test_put_replaces_the_whole_object(new_topic: NewTopic) -> None:
    topic = new_topic(**OTHER)
    assert topic.put(cap_records=7)["config"] == DEFAULTS | {"cap_records": 7}
    assert topic.put()["config"] == DEFAULTS
    assert topic.state()["config"] == DEFAULTS


@pytest.mark.parametrize(
    ("given", "durability", "durable"),
    [
        ({}, "disk", False),
        ({"durable": True}, "fsync", True),
        ({"durable": False}, "disk", False),
        ({"durable": True, "durability": "memory"}, "memory", False),
        ({"durable": False, "durability": "fsync"}, "fsync", True),
        ({"durable": True, "durability": None}, "fsync", True),
        ({"durability": "ephemeral"}, "ephemeral", False),
    ],
)
def test_durable_is_shorthand_and_an_explicit_class_wins(
    new_topic: NewTopic, given: dict[str, Any], durability: str, durable: bool
) -> None:
    config = new_topic().put(**given)["config"]
    assert (config["durability"], config["durable"]) == (durability, durable)


@pytest.mark.parametrize(
    ("field", "given", "stored"),
    [
        ("lease_ms", 0, 100),
        ("lease_ms", 99, 100),
        ("lease_ms", 100, 100),
        ("lease_ms", 86_400_001, 86_400_000),
        ("lease_ms", 2**64 - 1, 86_400_000),
        ("claim_jitter_ms", 5001, 5000),
        ("claim_jitter_ms", 2**64 - 1, 5000),
        ("priority", 1001, 1000),
        ("priority", -1001, -1000),
        ("priority", 2**31 - 1, 1000),
        ("priority", -(2**31), -1000),
        ("priority", 10**30, 1000),
        ("priority", -(10**30), -1000),
        ("lease_ms", 10**30, 86_400_000),
        ("claim_jitter_ms", 10**30, 5000),
        ("priority", 0, 0),
        ("ttl_ms", 2**64 - 1, 2**64 - 1),
        ("cap_records", 2**64 - 1, 2**64 - 1),
        ("cap_bytes", 2**64 - 1, 2**64 - 1),
        ("idempotency_window_ms", 2**64 - 1, 2**64 - 1),
        ("max_deliveries", 2**64 - 1, 2**64 - 1),
    ],
)
def test_values_are_pulled_into_range(new_topic: NewTopic, field: str, given: int, stored: int) -> None:
    topic = new_topic()
    assert topic.put(**{field: given})["config"][field] == stored
    topic.write("still works")
    assert topic.seqs() == [1]
    assert topic.state()["config"][field] == stored


UNSIGNED = [
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
]
BOOLEAN = ["durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"]


@pytest.mark.parametrize("field", [*UNSIGNED, *BOOLEAN, "type", "discard"])
def test_null_is_no_value_for_plain_fields(server: Server, unborn: TopicHandle, field: str) -> None:
    server.send("PUT", unborn.path, {field: None}).refused(400, "invalid_request")
    body = {"records": [{"data": 1}], "config": {field: None}}
    unborn.post(body).refused(400, "invalid_request")
    server.send("GET", unborn.path).refused(404, "topic_not_found")


@pytest.mark.parametrize("field", ["durability", "priority", "dead_letter"])
def test_null_counts_as_absent_for_nullable_fields(new_topic: NewTopic, field: str) -> None:
    assert new_topic().put(**{field: None})["config"] == DEFAULTS


@pytest.mark.parametrize(
    ("field", "values"),
    [
        *[(field, [-1, 1.5, "1", True, []]) for field in UNSIGNED],
        *[(field, [2**64, 10**30]) for field in UNSIGNED if field not in ("lease_ms", "claim_jitter_ms")],
        *[(field, [0, 1, "true", []]) for field in BOOLEAN],
        ("type", ["Log", "stream", "", 1]),
        ("discard", ["new", "OLD", "", 1]),
        ("durability", ["Fsync", "none", "", 1, True]),
        ("priority", ["1", 1.5, True, []]),
        ("dead_letter", ["", "-x", "a/b", "a b", "é", "x" * 256, 1, True, [], {"a": 1}]),
    ],
)
def test_config_values_of_the_wrong_kind(
    server: Server, unborn: TopicHandle, field: str, values: list[Any]
) -> None:
    for value in values:
        detail = server.send("PUT", unborn.path, {field: value}).refused(400, "invalid_request")
        if field == "dead_letter":
            assert detail == {"dead_letter": value}
    server.send("GET", unborn.path).refused(404, "topic_not_found")


def test_a_queue_may_not_be_its_own_dead_letter_topic(server: Server, unborn: TopicHandle) -> None:
    own = {"dead_letter": unborn.name}
    server.send("PUT", unborn.path, own | {"type": "queue"}).refused(400, "invalid_request")
    body = {"records": [{"data": 1}], "config": own | {"type": "queue"}}
    unborn.post(body).refused(400, "invalid_request")
    server.send("GET", unborn.path).refused(404, "topic_not_found")
    assert server.send("PUT", unborn.path, own).ok(201)["config"]["dead_letter"] == unborn.name


def test_the_type_is_fixed_for_life(server: Server, new_topic: NewTopic) -> None:
    queue = new_topic(type="queue")
    detail = server.send("PUT", queue.path, {}).refused(409, "topic_exists_incompatible")
    assert detail == {"topic": queue.name, "existing_type": "queue", "requested_type": "log"}
    server.send("PUT", queue.path).refused(409, "topic_exists_incompatible")
    assert queue.put(type="queue", max_deliveries=2)["config"]["max_deliveries"] == 2
    log = new_topic()
    log.write(1)
    detail = server.send("PUT", log.path, {"type": "queue"}).refused(409, "topic_exists_incompatible")
    assert detail == {"topic": log.name, "existing_type": "log", "requested_type": "queue"}
    assert log.state()["type"] == "log"
    log.drop().ok()
    server.send("PUT", log.path, {"type": "queue"}).ok(201)


def test_concurrent_creations_have_one_winner(server: Server, unborn: TopicHandle) -> None:
    outcomes: list[tuple[int, bool]] = []
    barrier = threading.Barrier(8)

    def create() -> None:
        client = server.client()
        barrier.wait()
        answer = client.send("PUT", unborn.path, {"durability": "fsync"})
        outcomes.append((answer.status, answer.json["created"]))
        client.close()

    in_parallel(*[create] * 8)
    assert sorted(outcomes) == [(200, False)] * 7 + [(201, True)]


def test_a_tighter_cap_acts_before_the_put_returns_and_a_looser_one_revives_nothing(
    new_topic: NewTopic,
) -> None:
    topic = new_topic()
    topic.fill(6)
    topic.put(cap_records=2)
    state = topic.state()
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (2, 5, 6)
    topic.put()
    assert topic.seqs() == [5, 6]
    assert topic.gap(0) == (1, 4, "cap")


def test_a_tighter_byte_cap_acts_at_once(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write("x" * 98)
    topic.write("y" * 48)
    assert topic.state()["bytes"] == 150
    topic.put(cap_bytes=149)
    state = topic.state()
    assert (state["count"], state["bytes"], state["earliest_seq"]) == (1, 50, 2)


def test_a_tighter_ttl_acts_at_once_and_a_looser_one_revives_nothing(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    time.sleep(0.25)
    topic.put(ttl_ms=100)
    topic.put()
    assert topic.state()["earliest_seq"] == 4
    assert topic.gap(0) == (1, 3, "ttl")
    topic.write("new")
    assert topic.seqs() == [4]


def test_a_reject_topic_shrunk_below_its_content_evicts(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(4)
    topic.put(cap_records=2, discard="reject")
    assert topic.state()["count"] == 2
    assert topic.gap(0) == (1, 2, "cap")
    topic.post({"records": [{"data": 1}]}).refused(422, "topic_full")


# State


def test_state_of_a_fresh_topic(new_topic: NewTopic) -> None:
    state = new_topic().state("")
    assert set(state) == {
        *("topic", "type", "head_seq", "earliest_seq", "next_seq", "count", "bytes", "epoch", "config"),
        *("effective_priority", "last_write_ts", "last_read_ts", "idempotency_kept_ms", "performance"),
    }
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"], state["type"]) == (0, 0, "log")
    assert state["last_write_ts"] is None


def test_state_counts_live_records_and_their_bytes(new_topic: NewTopic) -> None:
    topic = new_topic()
    before = int(time.time() * 1000)
    topic.records(
        {"data": {"a": 1}, "tag": "ignored", "node": "ignored", "meta": {"m": [1, 2]}}, {"data": None}
    )
    state = topic.state()
    assert state["bytes"] == len('{"a":1}') + len('{"m":[1,2]}') + len("null")
    assert (state["count"], state["head_seq"], state["next_seq"], state["earliest_seq"]) == (2, 2, 3, 1)
    assert before <= state["last_write_ts"] <= int(time.time() * 1000)
    assert state["last_write_ts"] == topic.diff()["records"][-1]["$ts"]


def test_white_space_is_not_counted(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.post(b'{ "records" : [ { "data" : { "a" : [ 1 , 2 ] } , "meta" : { "b" : " " } } ] }').ok()
    assert topic.state()["bytes"] == len('{"a":[1,2]}') + len('{"b":" "}')


def test_reading_state_touches_unless_told_not_to(new_topic: NewTopic) -> None:
    topic = new_topic()
    untouched = topic.state("?touch=false")
    assert (untouched["last_read_ts"], untouched["effective_priority"]) == (None, 0)
    assert topic.state("?touch=0")["last_read_ts"] is None
    before = int(time.time() * 1000)
    touched = topic.state("")
    assert before <= touched["last_read_ts"] <= int(time.time() * 1000)
    assert touched["effective_priority"] == 500
    assert topic.state("?touch=false")["last_read_ts"] == touched["last_read_ts"]
    assert new_topic().state("?touch=maybe")["last_read_ts"] is not None


def test_diff_touches_too(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.diff()
    state = topic.state("?touch=false")
    assert state["last_read_ts"] is not None
    assert 490 <= state["effective_priority"] <= 500


def test_manual_priority_wins_and_automatic_can_be_off(new_topic: NewTopic) -> None:
    topic = new_topic(priority=5000)
    assert topic.state("")["effective_priority"] == 1000
    topic.put(auto_priority=False)
    assert topic.state("")["effective_priority"] == 0
    topic.put(priority=-7, auto_priority=False)
    assert topic.state("")["effective_priority"] == -7


# Lists


@pytest.fixture(scope="module")
def listed(server: Server) -> list[str]:
    """Names under one prefix, in the order the server has to list them: by byte."""
    made = [
        f"list:{middle}" for middle in ("-", ".", "0", "1", "10", "2", ":", "B", "Z", "_", "a", "a-", "b")
    ]
    for name in reversed(made):
        server.topic(name)
    return sorted(made, key=str.encode)


def pages(server: Server, query: str) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = ""
    while True:
        body = server.send("GET", f"/v0/topics?{query}&cursor={cursor}").ok()
        assert set(body) <= {"topics", "next_cursor", "performance"}
        found.append([entry["topic"] for entry in body["topics"]])
        if "next_cursor" not in body:
            return found
        cursor = quote(body["next_cursor"], safe="")


def test_list_entries_are_sorted_and_exact(server: Server, listed: list[str]) -> None:
    handle = TopicHandle(server, listed[0])
    handle.write("abc")
    body = server.send("GET", "/v0/topics?prefix=list:").ok()
    assert [entry["topic"] for entry in body["topics"]] == listed
    assert "next_cursor" not in body
    first = body["topics"][0]
    assert first == {
        "topic": listed[0],
        "head_seq": 1,
        "earliest_seq": 1,
        "count": 1,
        "bytes": 5,
        "durable": False,
        "effective_priority": 0,
    }
    handle.drop().ok()
    handle.put()


@pytest.mark.parametrize("size", [1, 3, 5, 12, 13, 14])
def test_pages_cover_the_list_once(server: Server, listed: list[str], size: int) -> None:
    found = pages(server, f"prefix=list:&page_size={size}")
    assert [name for page in found for name in page] == listed
    assert all(len(page) == size for page in found[:-1])
    assert found[-1]


def test_a_page_may_end_where_the_list_ends(server: Server, listed: list[str]) -> None:
    assert len(pages(server, f"prefix=list:&page_size={len(listed)}")) == 1


def test_page_size_is_clamped_and_forgiving(server: Server, listed: list[str]) -> None:
    assert len(pages(server, "prefix=list:&page_size=0")[0]) == 1
    for word in ("", "abc", "-3", "1.5", "1_0", "%2010", "%D9%A3", "5000", "9" * 23, "9" * 5000):
        assert pages(server, f"prefix=list:&page_size={word}") == [listed]


def test_the_default_page_holds_a_hundred(boot: Boot) -> None:
    server = boot()
    for number in range(102):
        server.topic(f"t{number:03}")
    first = server.send("GET", "/v0/topics").ok()
    assert len(first["topics"]) == 100
    assert len(server.send("GET", "/v0/topics?page_size=abc").ok()["topics"]) == 100
    rest = server.send("GET", "/v0/topics?cursor=" + quote(first["next_cursor"], safe="")).ok()
    assert [entry["topic"] for entry in rest["topics"]] == ["t100", "t101"]
    assert "next_cursor" not in rest
    assert len(server.send("GET", "/v0/topics?page_size=101").ok()["topics"]) == 101


@pytest.mark.parametrize("cursor", ["!!!", "%00", "a", "bm9wZQ", "%ff%fe", "0"])
def test_a_cursor_nobody_gave_out_is_refused(server: Server, cursor: str) -> None:
    server.send("GET", f"/v0/topics?cursor={cursor}").refused(400, "invalid_request")


def test_a_cursor_survives_the_topic_it_names(server: Server) -> None:
    for name in ("gone-a", "gone-b", "gone-c"):
        server.topic(name)
    first = server.send("GET", "/v0/topics?prefix=gone-&page_size=2").ok()
    TopicHandle(server, "gone-b").drop().ok()
    rest = server.send("GET", "/v0/topics?prefix=gone-&cursor=" + quote(first["next_cursor"], safe="")).ok()
    assert [entry["topic"] for entry in rest["topics"]] == ["gone-c"]


def test_prefixes_are_decoded_and_exact(server: Server, listed: list[str]) -> None:
    def under(prefix: str) -> list[str]:
        body = server.send("GET", f"/v0/topics?prefix={prefix}").ok()
        return [entry["topic"] for entry in body["topics"]]

    assert under("list%3Aa") == ["list:a", "list:a-"]
    assert under("LIST:") == []
    assert under("list:%C3%A9") == []
    assert under("list:1") == ["list:1", "list:10"]


def test_listing_touches_only_when_asked(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    server.send("GET", f"/v0/topics?prefix={topic.name}").ok()
    assert topic.state()["last_read_ts"] is None
    server.send("GET", f"/v0/topics?prefix={topic.name}&touch=yes").ok()
    assert topic.state()["last_read_ts"] is None
    body = server.send("GET", f"/v0/topics?prefix={topic.name}&touch=true").ok()
    assert body["topics"][0]["effective_priority"] == 500
    assert topic.state()["last_read_ts"] is not None


# Names


@pytest.mark.parametrize(
    "name", ["a", "Z", "0", "a" * 255, "a.b_c:d-e", "0..::--__", "con", "COM1", "a..", "A-a"]
)
def test_valid_names(server: Server, name: str) -> None:
    TopicHandle(server, name).put()
    assert TopicHandle(server, name).write(1)["topic"] == name
    assert TopicHandle(server, name).state()["topic"] == name
    assert TopicHandle(server, name).drop().ok()["deleted"] is True


INVALID = [
    "a" * 256,
    ".a",
    "-a",
    "_a",
    ":a",
    "..",
    "a b",
    "a/b",
    "a>b",
    "é",
    "a\n",
    "a\x00",
    "a\\b",
    "*",
    "a?b",
    "a#b",
    "a%b",
]


@pytest.mark.parametrize("name", INVALID, ids=lambda name: repr(name[:8]))
def test_invalid_names_are_refused_only_where_they_could_create(server: Server, name: str) -> None:
    topic = TopicHandle(server, quote(name, safe=""))
    server.send("PUT", topic.path, {}).refused(400, "invalid_request")
    topic.post({"records": [{"data": 1}]}).refused(400, "invalid_request")
    topic.post({"records": [{"data": 1}], "create": True}).refused(400, "invalid_request")
    for answer in (
        topic.post({"records": [{"data": 1}], "create": False}),
        server.send("GET", topic.path),
        topic.ask_diff(),
        topic.ask_delete({"before_seq": 1}),
    ):
        assert answer.refused(404, "topic_not_found") == {"topic": name}
    dropped = topic.drop().ok()
    assert (dropped["deleted"], dropped["topic"], dropped["routers_removed"]) == (False, name, [])


def test_names_that_are_not_unicode_are_simply_unknown(server: Server) -> None:
    server.send("GET", "/v0/topics/%ff").refused(404, "topic_not_found")
    server.send("PUT", "/v0/topics/%ff", {}).refused(400, "invalid_request")


def test_percent_encoding_is_only_spelling(server: Server) -> None:
    server.topic("enc:oded")
    assert server.send("GET", "/v0/topics/%65nc%3Aoded").ok()["topic"] == "enc:oded"
    assert server.send("GET", "/v0/topics/enc%3aoded").ok()["topic"] == "enc:oded"
    server.send("POST", "/v0/topics/enc%3Aoded/diff", {}).ok()
    assert server.send("PUT", "/v0/topics/%65nc:oded", {}).ok()["created"] is False


def test_names_are_case_sensitive(server: Server) -> None:
    server.topic("Case").write(1)
    server.send("GET", "/v0/topics/case").refused(404, "topic_not_found")


def test_a_topic_may_be_called_like_a_route(server: Server) -> None:
    for name in ("diff", "delete", "topics", "health"):
        topic = server.topic(name)
        topic.write(1)
        assert topic.seqs() == [1]


# Deleting and recreating


def test_dropping_a_topic(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    gone = topic.drop().ok()
    assert set(gone) == {"topic", "deleted", "routers_removed", "performance"}
    assert (gone["topic"], gone["deleted"], gone["routers_removed"]) == (topic.name, True, [])
    server.send("GET", topic.path).refused(404, "topic_not_found")
    topic.ask_diff().refused(404, "topic_not_found")
    assert server.send("GET", f"/v0/topics?prefix={topic.name}").ok()["topics"] == []
    assert topic.drop().ok()["deleted"] is False


def test_dropping_only_if_empty(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    for word in ("true", "1"):
        detail = topic.drop(f"?if_empty={word}").refused(409, "topic_not_empty")
        assert detail == {"topic": topic.name, "count": 3}
    assert topic.seqs() == [1, 2, 3]
    topic.delete(before_seq=4)
    assert topic.drop("?if_empty=true").ok()["deleted"] is True
    topic.write(1)
    assert topic.drop("?if_empty=false").ok()["deleted"] is True
    topic.write(1)
    assert topic.drop("?if_empty=TRUE").ok()["deleted"] is True
    assert topic.drop("?if_empty=true").ok()["deleted"] is False


def test_emptiness_is_judged_after_expiry(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=100)
    topic.write(1)
    time.sleep(0.25)
    assert topic.drop("?if_empty=true").ok()["deleted"] is True


def test_a_recreated_topic_starts_over_under_a_larger_epoch(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=9_000_000)
    topic.records({"data": 1, "tag": "old"}, {"data": 2})
    epoch = topic.state()["epoch"]
    assert topic.diff()["epoch"] == epoch
    topic.drop().ok()
    answer = topic.write("new")
    assert (answer["created"], answer["first_seq"], answer["head_seq"]) == (True, 1, 1)
    state = topic.state()
    assert state["epoch"] > epoch
    assert state["config"] == DEFAULTS
    assert (state["count"], state["bytes"], state["earliest_seq"]) == (1, 5, 1)
    assert topic.delete(match="old")["deleted"] == 0
    assert [record["data"] for record in topic.diff()["records"]] == ["new"]


def test_many_lives_of_one_name_have_rising_epochs(new_topic: NewTopic) -> None:
    topic = new_topic()
    epochs = []
    for _ in range(4):
        epochs.append(topic.state()["epoch"])
        topic.drop().ok()
        topic.put()
    assert epochs == sorted(set(epochs))


def test_an_update_keeps_the_epoch(new_topic: NewTopic) -> None:
    topic = new_topic()
    epoch = topic.state()["epoch"]
    topic.put(cap_records=3)
    assert topic.state()["epoch"] == epoch
