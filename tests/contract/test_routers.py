"""Routers: what a definition is checked for, what is copied when, and what both ends show afterwards."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from tests.contract.conftest import NewTopic
from tests.contract.routers import ask, data, forwarded, interior_hole, route, router
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.support import eventually

ECHOED = {"source", "dest", "preserve_node", "preserve_tag", "filter", "allow_cycle", "guarantee"}


def absent(server: Server, *names: str) -> None:
    for name in names:
        server.send("GET", f"/v0/topics/{name}").refused(404, "topic_not_found")


# Definitions


def test_a_definition_is_echoed_with_its_defaults(server: Server) -> None:
    body = ask(server, "echo", "echo-a", "echo-b").ok(201)
    del body["performance"]
    expected = {
        "router": "echo",
        "created": True,
        "source": "echo-a",
        "dest": "echo-b",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    assert body == expected
    again = ask(server, "echo", "echo-a", "echo-b").ok(200)
    assert again["created"] is False
    shown = router(server, "echo")
    assert set(shown) == ECHOED | {"router", "forwarded_total", "performance"}
    assert {key: shown[key] for key in ECHOED} == {key: expected[key] for key in ECHOED}
    assert shown["forwarded_total"] == 0
    for name in ("echo-a", "echo-b"):
        state = TopicHandle(server, name).state()
        assert (state["head_seq"], state["config"]["durability"], state["type"]) == (0, "disk", "log")


def test_every_field_can_be_set_and_later_changed(server: Server) -> None:
    fields = {
        "preserve_node": False,
        "preserve_tag": False,
        "filter": ["tag", "Eq", "x"],
        "allow_cycle": True,
        "guarantee": "exactly_once",
    }
    created = ask(server, "fields", "fields-a", "fields-b", **fields).ok(201)
    assert {key: created[key] for key in fields} == fields
    replaced = ask(server, "fields", "fields-a", "fields-b").ok(200)
    assert replaced["filter"] is None
    assert replaced["guarantee"] == "at_least_once"
    assert replaced["preserve_node"] is True


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        ("boats", ["tag", "Eq", "boats"]),
        ("boats*", ["tag", "Glob", "boats*"]),
        ("*", ["tag", "Glob", "*"]),
        (["tag", "Glob", "a*b*"], ["tag", "Glob", "a*b*"]),
        (None, None),
    ],
)
def test_filters_are_echoed_in_full(server: Server, names: Any, given: Any, echoed: Any) -> None:
    name = next(names)
    assert ask(server, name, name + "-a", name + "-b", filter=given).ok(201)["filter"] == echoed
    assert router(server, name)["filter"] == echoed


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "bad-a"},
        {"dest": "bad-b"},
        {"source": "bad-a", "dest": "bad-a"},
        {"source": "bad a", "dest": "bad-b"},
        {"source": "bad-a", "dest": "bad>b"},
        {"source": "", "dest": "bad-b"},
        {"source": None, "dest": "bad-b"},
        {"source": 5, "dest": "bad-b"},
        {"source": "bad-a", "dest": ["bad-b"]},
        {"source": "bad-a", "dest": "bad-b", "preserve_node": "yes"},
        {"source": "bad-a", "dest": "bad-b", "preserve_tag": None},
        {"source": "bad-a", "dest": "bad-b", "create_dest": 1},
        {"source": "bad-a", "dest": "bad-b", "allow_cycle": 0},
        {"source": "bad-a", "dest": "bad-b", "guarantee": "at_most_once"},
        {"source": "bad-a", "dest": "bad-b", "guarantee": None},
        {"source": "bad-a", "dest": "bad-b", "filter": ["tag", "Glob", "x"]},
        {"source": "bad-a", "dest": "bad-b", "filter": ["tag", "Like", "x"]},
        {"source": "bad-a", "dest": "bad-b", "filter": ["node", "Eq", "x"]},
        {"source": "bad-a", "dest": "bad-b", "filter": ["tag", "Eq"]},
        {"source": "bad-a", "dest": "bad-b", "filter": 7},
        [],
        b"{",
    ],
)
def test_an_unsound_definition_is_refused_and_leaves_nothing(server: Server, body: Any) -> None:
    server.send("PUT", "/v0/routers/bad", body).refused(400, "invalid_request")
    server.send("GET", "/v0/routers/bad").refused(404, "router_not_found")
    absent(server, "bad-a", "bad-b")


@pytest.mark.parametrize("name", ["%3Ea", "-a", "a%20b", "a" * 256, "caf%C3%A9", "a%2Fb"])
def test_router_names_have_an_alphabet(server: Server, name: str) -> None:
    ask(server, name, "named-a", "named-b").refused(400, "invalid_request")
    assert server.send("GET", f"/v0/routers/{name}").status == 404
    assert server.send("DELETE", f"/v0/routers/{name}").ok()["deleted"] is False
    absent(server, "named-a", "named-b")


def test_arrows_belong_in_router_names(server: Server) -> None:
    assert ask(server, "n%3E>m.x:y-z", "arrow-a", "arrow-b").ok(201)["router"] == "n>>m.x:y-z"
    assert router(server, "n>>m.x:y-z")["source"] == "arrow-a"


def test_a_missing_destination_may_be_forbidden(server: Server, new_topic: NewTopic) -> None:
    detail = ask(server, "nodest", "nodest-a", "nodest-b", create_dest=False).refused(404, "topic_not_found")
    assert detail == {"topic": "nodest-b"}
    absent(server, "nodest-a", "nodest-b")
    server.send("GET", "/v0/routers/nodest").refused(404, "router_not_found")
    ask(server, "nodest", "nodest-a", new_topic().name, create_dest=False).ok(201)


def test_a_destination_has_one_source(server: Server, new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    detail = ask(server, "second", "fan-in-other", dest.name).refused(409, "topic_exists_incompatible")
    assert detail == {"topic": dest.name, "reason": "router_dest_fan_in"}
    absent(server, "fan-in-other")
    server.send("GET", "/v0/routers/second").refused(404, "router_not_found")
    route(source, dest, "same-source-again")
    source.write("x")
    assert data(dest) == ["x", "x"]


def test_endpoints_of_a_router_are_fixed(server: Server, new_topic: NewTopic) -> None:
    source, dest, other = new_topic(), new_topic(), new_topic()
    name = route(source, dest)
    expected = {
        "router": name,
        "reason": "router_repoint_forbidden",
        "existing_source": source.name,
        "existing_dest": dest.name,
    }
    for ends in ((source.name, "repoint-new"), (source.name, other.name), (dest.name, other.name)):
        assert ask(server, name, *ends).refused(409, "topic_exists_incompatible") == expected
    absent(server, "repoint-new")
    # The second feeder is noticed before the new endpoints are.
    third = new_topic()
    route(third, other)
    detail = ask(server, name, source.name, other.name).refused(409, "topic_exists_incompatible")
    assert detail["reason"] == "router_dest_fan_in"


def test_loops_are_refused_unless_wanted(server: Server, new_topic: NewTopic) -> None:
    a, b, c = new_topic(), new_topic(), new_topic()
    route(a, b)
    route(b, c)
    detail = ask(server, "closing", c.name, a.name).refused(409, "router_cycle")
    assert detail == {"cycle": [c.name, a.name, b.name, c.name]}
    detail = ask(server, "closing", b.name, a.name).refused(409, "router_cycle")
    assert detail == {"cycle": [b.name, a.name, b.name]}
    ask(server, f"{a.name}>{b.name}", a.name, b.name, preserve_node=False).ok(200)
    ask(server, "closing", c.name, a.name, allow_cycle=True).ok(201)
    for name in ("closing", f"{a.name}>{b.name}", f"{b.name}>{c.name}"):
        server.send("DELETE", f"/v0/routers/{name}").ok()


def test_lookup_and_deletion_of_what_is_not_there(server: Server) -> None:
    assert server.send("GET", "/v0/routers/never").refused(404, "router_not_found") == {"router": "never"}
    body = server.send("DELETE", "/v0/routers/never").ok()
    assert set(body) == {"router", "deleted", "performance"}
    assert body["deleted"] is False
    server.send("POST", "/v0/routers/never", {}).refused(405, "method_not_allowed")
    server.send("PUT", "/v0/routers", {}).refused(405, "method_not_allowed")


# Lists


def test_lists_are_sorted_filtered_and_paged(server: Server) -> None:
    for number in (3, 1, 2):
        ask(server, f"list>{number}", f"list-a{number % 2}", f"list-b{number}").ok(201)
    TopicHandle(server, "list-a1").write("x")

    def page(query: str) -> Any:
        return server.send("GET", f"/v0/routers?{query}").ok()

    listed = page("prefix=list")
    assert set(listed) == {"routers", "performance"}
    assert listed["routers"] == [
        {
            "router": f"list>{number}",
            "source": f"list-a{number % 2}",
            "dest": f"list-b{number}",
            "guarantee": "at_least_once",
            "forwarded_total": number % 2,
        }
        for number in (1, 2, 3)
    ]
    assert [entry["router"] for entry in page("source=list-a1")["routers"]] == ["list>1", "list>3"]
    assert [entry["router"] for entry in page("dest=list-b2")["routers"]] == ["list>2"]
    assert page("source=list-a1&dest=list-b2")["routers"] == []
    assert page("prefix=list%3E3&source=list-a1")["routers"][0]["router"] == "list>3"
    assert page("prefix=nothing")["routers"] == []
    first = page("prefix=list&page_size=2")
    assert [entry["router"] for entry in first["routers"]] == ["list>1", "list>2"]
    second = page(f"prefix=list&page_size=2&cursor={first['next_cursor']}")
    assert [entry["router"] for entry in second["routers"]] == ["list>3"]
    assert "next_cursor" not in second
    assert len(page("prefix=list&page_size=0")["routers"]) == 1
    assert len(page("prefix=list&page_size=what&cursor=")["routers"]) == 3
    server.send("GET", "/v0/routers?cursor=%21%21").refused(400, "invalid_request")


# Forwarding


def test_a_copy_is_there_for_the_first_read_after_the_write(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest)
    for number in range(1, 20):
        source.write(number)
        if number % 4 == 0:
            assert dest.state()["head_seq"] == number
        elif number % 4 == 1:
            assert dest.diff(number - 1)["records"][0]["data"] == number
        elif number % 4 == 2:
            assert forwarded(source.server, name) == number
        else:
            listed = source.server.send("GET", f"/v0/topics?prefix={dest.name}").ok()
            assert listed["topics"][0]["topic"] == dest.name
    assert data(dest) == list(range(1, 20))


def test_a_copy_keeps_payload_node_and_tag(new_topic: NewTopic) -> None:
    source, full, bare = new_topic(), new_topic(), new_topic()
    full.fill(3)
    route(source, full)
    route(source, bare, preserve_node=False, preserve_tag=False)
    source.records(
        {"data": {"a": [1, 2.50, "é"]}, "tag": "t", "node": "n", "meta": {"m": {"x": None}}}, {"data": None}
    )
    [whole, plain] = full.diff(3, include_tags=True)["records"]
    del whole["$ts"], plain["$ts"]
    expected = {
        "$seq": 4,
        "$node": "n",
        "$tag": "t",
        "data": {"a": [1, 2.5, "é"]},
        "meta": {"m": {"x": None}},
    }
    assert whole == expected
    assert plain == {"$seq": 5, "data": None}
    stripped = bare.diff(include_tags=True)["records"][0]
    del stripped["$ts"]
    assert stripped == {"$seq": 1, "data": expected["data"], "meta": expected["meta"]}
    assert full.delete(match="t")["deleted"] == 1
    assert source.diff()["records"][0]["$seq"] == 1


def test_only_what_is_written_afterwards_is_copied(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    source.fill(50)
    name = route(source, dest)
    assert dest.state()["head_seq"] == 0
    source.write("fifty-first")
    page = dest.diff()
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(1, "fifty-first")]
    assert page["tombstone"] is None
    assert forwarded(source.server, name) == 1


def test_an_update_keeps_the_position(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest)
    source.fill(3)
    ask(source.server, name, source.name, dest.name, preserve_node=False).ok(200)
    source.write(3)
    ask(source.server, name, source.name, dest.name).ok(200)
    assert data(dest) == [0, 1, 2, 3]
    assert forwarded(source.server, name) == 4


def test_a_filter_passes_over_the_rest(new_topic: NewTopic) -> None:
    source, boats, exact = new_topic(), new_topic(), new_topic()
    glob = route(source, boats, filter="boat:*")
    route(source, exact, filter=["tag", "Eq", "boat:1"])
    source.records(
        {"data": 1, "tag": "boat:1"},
        {"data": 2, "tag": "car:1"},
        {"data": 3},
        {"data": 4, "tag": "boat:"},
        {"data": 5, "tag": "boat"},
        {"data": 6, "tag": "boat:1"},
    )
    assert data(boats) == [1, 4, 6]
    assert boats.seqs() == [1, 2, 3]
    assert data(exact) == [1, 6]
    assert forwarded(source.server, glob) == 3
    assert boats.diff()["tombstone"] is None


def test_direct_writes_into_a_destination_go_on(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    source.write("copied")
    assert dest.state()["head_seq"] == 1
    dest.write("direct")
    source.write("copied too")
    assert data(dest) == ["copied", "direct", "copied too"]


def test_deleting_a_router_stops_it_and_leaves_the_copies(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest)
    source.write(1)
    assert data(dest) == [1]
    assert source.server.send("DELETE", f"/v0/routers/{name}").ok()["deleted"] is True
    source.write(2)
    assert data(dest) == [1]
    source.server.send("GET", f"/v0/routers/{name}").refused(404, "router_not_found")
    assert source.server.send("DELETE", f"/v0/routers/{name}").ok()["deleted"] is False
    # A new router of that name is a new beginning.
    route(source, dest)
    source.write(3)
    assert data(dest) == [1, 3]
    assert forwarded(source.server, name) == 1


def test_deleting_a_topic_takes_its_routers_along(server: Server, new_topic: NewTopic) -> None:
    a, b, c = new_topic(), new_topic(), new_topic()
    route(b, c, "away-2")
    route(a, b, "away-1")
    assert b.drop().ok()["routers_removed"] == ["away-1", "away-2"]
    for name in ("away-1", "away-2"):
        server.send("GET", f"/v0/routers/{name}").refused(404, "router_not_found")
    b.put()
    a.write("x")
    assert b.state()["head_seq"] == 0
    route(c, b, "away-3")


def test_a_destination_that_evicts_goes_on_evicting(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic(cap_records=2)
    name = route(source, dest)
    source.fill(5)
    assert dest.gap() == (1, 3, "cap")
    assert dest.seqs() == [4, 5]
    assert forwarded(source.server, name) == 5


def test_a_full_destination_holds_the_router_until_there_is_room(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic(cap_records=3, discard="reject")
    name = route(source, dest)
    source.fill(5)
    assert data(dest) == [0, 1, 2]
    assert forwarded(source.server, name) == 3
    dest.post({"records": [{"data": "direct"}]}).refused(422, "topic_full")
    dest.delete(before_seq=4)
    page = dest.diff()
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(4, 3), (5, 4)]
    assert page["tombstone"] is None
    assert forwarded(source.server, name) == 5


def test_what_was_deleted_at_the_source_leaves_no_trace(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic(cap_records=1, discard="reject")
    name = route(source, dest)
    source.records({"data": 1}, {"data": 2, "tag": "x"}, {"data": 3}, {"data": 4, "tag": "x"}, {"data": 5})
    assert data(dest) == [1]
    source.delete(match="x")
    dest.put(cap_records=0)
    page = dest.diff()
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(1, 1), (2, 3), (3, 5)]
    assert page["tombstone"] is None
    assert forwarded(source.server, name) == 3


def test_deletes_do_not_travel(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    source.fill(3)
    assert data(dest) == [0, 1, 2]
    source.delete(before_seq=4)
    assert data(dest) == [0, 1, 2]
    assert dest.delete(before_seq=3)["deleted"] == 2
    assert dest.seqs() == [3]


def test_copies_wake_a_long_poll(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    route(source, dest)
    pages: list[Any] = []

    def poll() -> None:
        client = source.server.client()
        pages.append(client.send("POST", dest.path + "/diff", {"wait_ms": 20_000}).ok())
        client.close()

    def write() -> None:
        time.sleep(0.1)
        source.write("x")

    in_parallel(poll, write)
    assert [record["data"] for record in pages[0]["records"]] == ["x"]


def test_copies_keep_the_order_of_the_source_under_load(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest)
    barrier = threading.Barrier(4)

    def produce(number: int) -> None:
        client = source.server.client()
        barrier.wait()
        for turn in range(25):
            records = [{"data": [number, turn, index]} for index in range(3)]
            client.send("POST", source.path, {"records": records}).ok()
        client.close()

    in_parallel(*[lambda number=number: produce(number) for number in range(4)])
    assert data(dest) == data(source)
    assert dest.seqs(limit=1000) == list(range(1, 301))
    assert forwarded(source.server, name) == 300


# Exactly once


def test_exactly_once_copies_say_where_they_come_from(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    name = route(source, dest, guarantee="exactly_once")
    many = {f"k{number}": number for number in range(64)}
    source.records({"data": 1}, {"data": 2, "meta": {"own": 1}}, {"data": 3, "meta": many})
    first, second, third = (record["meta"] for record in dest.diff()["records"])
    assert set(first) == {"_topics_router"}
    assert set(second) == {"_topics_router", "own"}
    assert second["own"] == 1
    assert set(third) == {"_topics_router", "_topics_original_meta"}
    assert third["_topics_original_meta"] == many
    for seq, meta in enumerate((first, second, third), 1):
        stamp = meta["_topics_router"]
        assert set(stamp) == {
            "idempotency_key",
            "router",
            "source_topic",
            "source_topic_id",
            "source_epoch",
            "source_seq",
        }
        assert (stamp["router"], stamp["source_topic"], stamp["source_seq"]) == (name, source.name, seq)
        key = f"router:{name}:{stamp['source_topic_id']}:{stamp['source_epoch']}:{seq}"
        assert stamp["idempotency_key"] == key
    assert [record.get("meta") for record in source.diff()["records"]] == [None, {"own": 1}, many]


# Loops and chains


def test_two_topics_mirrored_both_ways(new_topic: NewTopic) -> None:
    first, second = new_topic(), new_topic()
    route(first, second)
    route(second, first, allow_cycle=True)
    first.records({"data": "x", "node": "origin"})
    eventually(lambda: (first.state()["head_seq"], second.state()["head_seq"]) == (5, 4))
    time.sleep(0.12)
    assert (first.state()["head_seq"], second.state()["head_seq"]) == (5, 4)
    assert {record["$node"] for record in first.diff()["records"]} == {"origin"}
    echo = first.diff(node="origin")
    assert (echo["records"], echo["caught_up"]) == ([], True)


def test_a_straight_chain_ends_after_eight_hops(new_topic: NewTopic) -> None:
    chain = [new_topic() for _ in range(10)]
    routers = [route(source, dest) for source, dest in itertools.pairwise(chain)]
    chain[0].write("x")
    eventually(lambda: chain[8].state()["head_seq"] == 1)
    assert forwarded(chain[0].server, routers[-1]) == 0
    assert [topic.state()["head_seq"] for topic in chain] == [1] * 9 + [0]
    # Every record counts its own hops: a direct write in the middle gets further.
    chain[5].write("y")
    eventually(lambda: chain[9].state()["head_seq"] == 1)
    assert data(chain[9]) == ["y"]


def test_a_loss_between_mirrors_comes_to_rest(new_topic: NewTopic) -> None:
    first, second = new_topic(cap_records=1), new_topic()
    names = [route(first, second), route(second, first, allow_cycle=True)]
    # The first two are lost before anybody could copy them; what is told of them takes their place.
    first.write(1, 2, 3)
    eventually(lambda: (first.state()["head_seq"], second.state()["head_seq"]) == (15, 12))
    time.sleep(0.12)
    assert (first.state()["head_seq"], second.state()["head_seq"]) == (15, 12)
    assert [forwarded(first.server, name) for name in names] == [12, 12]
    assert data(first) == [3]
    assert [record["data"] for record in second.drain()[0]] == [3, 3, 3, 3]


# Loss at the source

LARGE, SMALL = "x" * 40, "x"


@pytest.mark.parametrize("loss", ["cap", "ttl"])
def test_what_the_source_lost_before_it_could_be_copied_is_announced(new_topic: NewTopic, loss: str) -> None:
    source = new_topic(cap_records=1) if loss == "cap" else new_topic(ttl_ms=150)
    # Too small for the large records ever to fit: the router waits in front of the first one.
    dest = new_topic(cap_bytes=20, discard="reject")
    name = route(source, dest)
    for _ in range(3):
        source.write(LARGE)
    assert dest.state()["count"] == 0
    if loss == "ttl":
        eventually(lambda: source.state()["count"] == 0)
    source.write(SMALL)
    page = dest.diff()
    assert page["tombstone"]["reason"] == "source_trim"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)
    assert [record["$seq"] for record in page["records"]] == [4]
    assert page["earliest_seq"] == 4
    assert dest.gap(1) == (2, 3, "source_trim")
    assert dest.gap(3) is None
    assert forwarded(source.server, name) == 4


def test_holes_wait_behind_a_full_destination_like_records(new_topic: NewTopic) -> None:
    source, dest = new_topic(cap_records=1), new_topic(cap_records=1, discard="reject")
    dest.write("direct")
    name = route(source, dest)
    source.fill(3)
    assert dest.state()["head_seq"] == 1
    assert forwarded(source.server, name) == 0
    dest.delete(before_seq=2)
    page = dest.diff()
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)
    assert page["tombstone"]["reason"] == "source_trim"
    assert [(record["$seq"], record["data"]) for record in page["records"]] == [(4, 2)]
    assert dest.gap(1) == (2, 3, "source_trim")


def test_a_hole_above_live_records_leaves_them_readable(new_topic: NewTopic) -> None:
    source, dest = new_topic(), new_topic()
    interior_hole(source, dest)
    page = dest.diff()
    assert [record["$seq"] for record in page["records"]] == [1, 2]
    assert (page["next_from_seq"], page["tombstone"], page["caught_up"]) == (2, None, False)
    assert (page["earliest_seq"], page["head_seq"]) == (1, 5)
    assert dest.gap(2) == (3, 4, "source_trim")
    assert dest.gap(3) == (4, 4, "source_trim")
    assert dest.seqs(2) == [5]
    assert dest.gap(4) is None
    records, gaps = dest.drain()
    assert [record["$seq"] for record in records] == [1, 2, 5]
    assert [(gap["gap_from"], gap["gap_to"]) for gap in gaps] == [(3, 4)]
    assert dest.state()["count"] == 3
    # A delete never makes a cursor be told of more or of less.
    dest.delete(before_seq=3)
    page = dest.diff()
    assert (page["records"], page["next_from_seq"], page["tombstone"]) == ([], 2, None)
    assert (page["earliest_seq"], page["caught_up"]) == (5, False)
    assert dest.gap(2) == (3, 4, "source_trim")
