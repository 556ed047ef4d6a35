"""Who is asking, what the list of topics can tell, and heads without bodies."""

from __future__ import annotations

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import as_queue
from tests.contract.server import Server

ENTRY = {"topic", "head_seq", "earliest_seq", "count", "bytes", "durable", "effective_priority"}
DETAILS = {"type", "durability", "epoch", "lost", "deleted", "last_write_ts", "last_read_ts"}


def test_a_key_is_told_what_it_may_do(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="boss,shop:r+w:shop.|till.")
    server.send("GET", "/v0/whoami").refused(401, "unauthorized")
    boss = server.send("GET", "/v0/whoami", Authorization="Bearer boss").ok()
    assert (boss["scopes"], boss["prefixes"]) == (["read", "write", "delete", "admin"], [])
    assert len(boss["name"]) == 8
    shop = server.send("GET", "/v0/whoami", Authorization="Bearer shop").ok()
    assert (shop["scopes"], shop["prefixes"]) == (["read", "write"], ["shop.", "till."])
    assert set(shop) == {"name", "scopes", "prefixes", "performance"}


def test_an_open_server_says_so(server: Server) -> None:
    answer = server.send("GET", "/v0/whoami").ok()
    assert (set(answer), answer["auth"]) == ({"auth", "performance"}, "off")


def test_the_list_of_topics_with_details(server: Server, new_topic: NewTopic) -> None:
    capped = new_topic(cap_records=3, durability="fsync")
    capped.fill(5)
    capped.delete(seqs=[4])
    queue = as_queue(new_topic(type="queue"))
    queue.write(1, 2)
    queue.claim(1)
    empty = new_topic()

    def listed(query: str) -> dict[str, dict[str, object]]:
        entries = server.send("GET", "/v0/topics" + query).ok()["topics"]
        return {entry["topic"]: entry for entry in entries}

    for query in ("", "?detail=false"):
        assert all(set(entry) == ENTRY for entry in listed(query).values())
    found = listed("?detail=true")
    entry = found[capped.name]
    assert set(entry) == ENTRY | DETAILS
    assert (entry["type"], entry["durability"], entry["lost"], entry["deleted"]) == ("log", "fsync", 2, 1)
    assert entry["last_write_ts"] == capped.state()["last_write_ts"]
    assert found[queue.name]["queue"] == {"ready": 1, "in_flight": 1, "dead_lettered": 0}
    assert (found[empty.name]["lost"], found[empty.name]["last_write_ts"]) == (0, None)


def test_head_where_there_is_get(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    paths = [topic.path + more for more in ("", "/records", "/records/1", "/ledger")]
    for path in (
        *paths,
        "/v0/metrics",
        "/v0/info",
        "/v0/openapi.json",
        "/v0/cursors",
        topic.path + "/ledger",
    ):
        head = server.send("HEAD", path)
        assert (head.status, head.body) == (200, b""), path
        assert int(head.headers["content-length"]) > 0
        assert head.headers["content-type"] == server.send("GET", path).headers["content-type"]
    assert server.send("HEAD", topic.path + "/records/9").status == 404
    assert server.send("HEAD", "/v0/nowhere").status == 404
    for path in (f"/v0/tail?topic={topic.name}", "/v0/ws", topic.path + "/diff"):
        assert server.send("HEAD", path).status == 405
