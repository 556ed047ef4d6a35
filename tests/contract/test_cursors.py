"""Named cursors: a seq in one life of a topic, kept beyond that life; and the list of all of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle


def put(topic: TopicHandle, consumer: str, seq: int, **epoch: int) -> Any:
    return topic.server.send("PUT", f"{topic.path}/cursors/{consumer}", {"seq": seq, **epoch}).ok(201)


def listed(server: Server, query: str = "") -> list[Any]:
    """All pages, and what holds of each."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = server.send("GET", f"/v0/cursors?{query}&cursor={quote(cursor)}").ok()
        assert set(page) - {"next_cursor"} == {"cursors", "performance"}
        found += page["cursors"]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
    for one in found:
        assert set(one) == {"topic", "consumer", "epoch", "seq", "lag", "age_ms"}
        assert one["age_ms"] >= 0
    names = [(one["topic"], one["consumer"]) for one in found]
    assert names == sorted(set(names))
    return found


def in_short(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(one["topic"], one["consumer"], one["seq"], one["lag"]) for one in found]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_reader_who_comes_back_is_told_that_its_topic_is_another_one(boot: Boot, cleanly: bool) -> None:
    server = boot()
    topic = server.topic("t", durability="fsync")
    topic.fill(5)
    old = put(topic, "lake", 5)["epoch"]
    topic.drop().ok()
    server.restart(cleanly=cleanly)
    path = f"{topic.path}/cursors"
    # No topic, and still a cursor.
    shown = server.send("GET", f"{path}/lake").ok()
    assert (shown["seq"], shown["epoch"], shown["lag"]) == (5, old, None)
    everything = server.send("GET", path).ok()
    assert (everything["head_seq"], len(everything["cursors"])) == (None, 1)
    assert in_short(listed(server)) == [("t", "lake", 5, None)]
    topic.put()
    topic.fill(8)
    topic.delete(before_seq=3)
    shown = server.send("GET", f"{path}/lake").ok()
    assert (shown["seq"], shown["epoch"], shown["lag"]) == (5, old, 6)
    assert in_short(listed(server)) == [("t", "lake", 5, 6)]
    page = topic.diff(shown["seq"], epoch=shown["epoch"])
    assert (page["tombstone"]["reason"], page["tombstone"]["previous_epoch"]) == ("recreated", old)
    assert [record["$seq"] for record in page["records"]] == [3, 4, 5, 6, 7, 8]
    moved = server.send("PUT", f"{path}/lake", {"seq": 8, "epoch": page["epoch"]}).ok()
    assert (moved["created"], moved["lag"], moved["epoch"]) == (False, 0, page["epoch"])


def test_a_cursor_without_a_topic_can_be_removed(boot: Boot) -> None:
    server = boot()
    topic = server.topic("t")
    put(topic, "lake", 0)
    put(topic, "stays", 0)
    topic.drop().ok()
    path = f"{topic.path}/cursors"
    assert server.send("DELETE", f"{path}/lake").ok()["deleted"] is True
    assert server.send("DELETE", f"{path}/lake").ok()["deleted"] is False
    server.restart(cleanly=False)
    server.send("GET", f"{path}/lake").refused(404, "not_found")
    assert in_short(listed(server)) == [("t", "stays", 0, None)]
    # It needs a topic to be set.
    server.send("PUT", f"{path}/stays", {"seq": 1}).refused(404, "topic_not_found")
    assert server.send("DELETE", f"{path}/stays").ok()["deleted"] is True
    for method, where in (("GET", path), ("GET", f"{path}/stays"), ("DELETE", f"{path}/stays")):
        server.send(method, where).refused(404, "topic_not_found")
    assert listed(server) == []


def test_all_cursors_page_by_page(boot: Boot) -> None:
    server = boot()
    for name in ("a.one", "a.two", "b"):
        topic = server.topic(name)
        topic.fill(3)
        for consumer in ("x", "y"):
            put(topic, consumer, 1)
    gone = TopicHandle(server, "a.two")
    gone.drop().ok()
    everything = [
        ("a.one", "x", 1, 2),
        ("a.one", "y", 1, 2),
        ("a.two", "x", 1, None),
        ("a.two", "y", 1, None),
        ("b", "x", 1, 2),
        ("b", "y", 1, 2),
    ]
    for size in (1, 2, 4, 1000):
        assert in_short(listed(server, f"page_size={size}")) == everything
    assert in_short(listed(server, "prefix=a.&page_size=3")) == everything[:4]
    assert in_short(listed(server, "consumer=y&page_size=2")) == everything[1::2]
    assert in_short(listed(server, "consumer=y&prefix=b")) == everything[5:]
    assert listed(server, "consumer=nobody") == listed(server, "prefix=c") == []
    assert "next_cursor" not in server.send("GET", "/v0/cursors?page_size=6").ok()
    for wrong in ("nonsense", "YWZ0ZXI6YQ"):
        server.send("GET", f"/v0/cursors?cursor={wrong}").refused(400, "invalid_request")


def test_another_life_is_all_unread(new_topic: NewTopic) -> None:
    """Counted as records that are live, not as seqs."""
    topic = new_topic()
    topic.records(*({"data": number, "tag": "odd" if number % 2 else "even"} for number in range(10)))
    topic.delete(match="odd")
    put(topic, "lake", 4, epoch=12345)
    (one,) = listed(topic.server, f"prefix={topic.name}")
    assert (one["epoch"], one["seq"], one["lag"]) == (12345, 4, 5)


def test_a_key_sees_the_cursors_of_its_topics(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="all,mine:rw:a.,write:w,two:r:b.|a.t|a.tx")

    def ask(key: str, method: str, path: str, body: Any = None) -> Any:
        return server.send(method, path, body, Authorization=f"Bearer {key}")

    for name in ("a.t", "b.t"):
        ask("all", "PUT", f"/v0/topics/{name}", {}).ok(201)
        ask("all", "PUT", f"/v0/topics/{name}/cursors/c", {"seq": 0}).ok(201)
    assert [one["topic"] for one in ask("all", "GET", "/v0/cursors").ok()["cursors"]] == ["a.t", "b.t"]
    page = ask("mine", "GET", "/v0/cursors?page_size=1").ok()
    assert ([one["topic"] for one in page["cursors"]], "next_cursor" in page) == (["a.t"], False)
    assert ask("mine", "GET", "/v0/cursors?prefix=b.").ok()["cursors"] == []
    ask("write", "GET", "/v0/cursors").refused(403, "forbidden")
    # Prefixes that overlap show nothing twice; the one asked for narrows them down.
    for query, expected in (
        ("", ["a.t", "b.t"]),
        ("prefix=b", ["b.t"]),
        ("prefix=a.t", ["a.t"]),
        ("prefix=c", []),
    ):
        found = ask("two", "GET", f"/v0/cursors?{query}").ok()["cursors"]
        assert [one["topic"] for one in found] == expected
    # What is left of a topic is not for others to see either.
    ask("all", "DELETE", "/v0/topics/b.t").ok()
    ask("mine", "GET", "/v0/topics/b.t/cursors/c").refused(403, "forbidden")
    assert len(ask("mine", "GET", "/v0/cursors").ok()["cursors"]) == 1
