"""Limits on routers, sessions and streams: the last place is given, the next is refused, places come back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.contract.streams import Streams, ask_session, session
from tests.http.streaming import EventReader
from tests.support import Answer, eventually

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def throttled(answer: Answer, limit: str, maximum: int) -> None:
    assert answer.refused(429, "throttled") == {"limit": limit, "max": maximum}
    assert answer.headers["retry-after"] == "1"


def put_router(server: Server, name: str, source: str, dest: str, **fields: Any) -> Answer:
    return server.send("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields})


def topic_names(server: Server) -> list[str]:
    return [entry["topic"] for entry in server.send("GET", "/v0/topics").ok()["topics"]]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# Routers


def test_the_number_of_routers(boot: Boot) -> None:
    server = boot(TOPICS_MAX_ROUTERS="2")
    put_router(server, "one", "a", "b").ok(201)
    put_router(server, "two", "b", "c").ok(201)
    throttled(put_router(server, "three", "x", "y"), "max_routers", 2)
    assert topic_names(server) == ["a", "b", "c"]
    # Seen before a loop, but after everything that concerns the ends.
    throttled(put_router(server, "three", "c", "a"), "max_routers", 2)
    put_router(server, "three", "x", "c").refused(409, "topic_exists_incompatible")
    put_router(server, "three", "x", "y", create_dest=False).refused(404, "topic_not_found")
    put_router(server, "one", "a", "y").refused(409, "topic_exists_incompatible")
    put_router(server, "one", "a", "b", preserve_tag=False).ok(200)
    server.restart(cleanly=False)
    throttled(put_router(server, "three", "x", "y"), "max_routers", 2)
    server.send("DELETE", "/v0/routers/one").ok()
    put_router(server, "three", "x", "y").ok(201)
    server.send("DELETE", "/v0/topics/c").ok()
    put_router(server, "four", "x", "z").ok(201)
    throttled(put_router(server, "five", "x", "q"), "max_routers", 2)
    server.restart(cleanly=True, TOPICS_MAX_ROUTERS="0")
    put_router(server, "five", "x", "q").ok(201)


def test_a_race_for_the_last_routers(boot: Boot) -> None:
    server = boot(TOPICS_MAX_ROUTERS="3")
    statuses: list[int] = []
    barrier = threading.Barrier(6)

    def create(number: int) -> None:
        client = server.client()
        barrier.wait()
        for turn in range(2):
            body = {"source": "s", "dest": f"d{number}-{turn}"}
            statuses.append(client.send("PUT", f"/v0/routers/r{number}-{turn}", body).status)
        client.close()

    in_parallel(*[lambda number=number: create(number) for number in range(6)])
    assert sorted(statuses) == [201] * 3 + [429] * 9
    assert len(server.send("GET", "/v0/routers").ok()["routers"]) == 3
    assert len(topic_names(server)) == 4


def test_routers_create_topics_within_their_limit(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOPICS="2")
    server.topic("a")
    throttled(put_router(server, "r", "x", "y"), "max_topics", 2)
    assert topic_names(server) == ["a"]
    server.send("GET", "/v0/routers/r").refused(404, "router_not_found")
    put_router(server, "r", "a", "b").ok(201)


def test_dead_letters_create_topics_within_their_limit(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOPICS="1")
    queue = server.topic("jobs", type="queue", max_deliveries=1, dead_letter="letters")
    queue.write(1)
    server.send("POST", "/v0/topics/jobs/claim", {"node": "w"}).ok()
    server.send("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [1]}).ok()
    server.send("POST", "/v0/topics/jobs/claim", {"node": "w"})
    assert topic_names(server) == ["jobs"]
    state = queue.state()
    assert (state["count"], state["queue"]["dead_lettered"]) == (1, 0)


def test_limits_reach_the_socket(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_TOPICS="1", TOPICS_MAX_TOTAL_BYTES="10")
    server.topic("t")
    client = streams.socket(server)
    for topic, data, limit, most in (("other", 1, "max_topics", 1), ("t", "x" * 20, "max_total_bytes", 10)):
        message = client.ask(op="publish", topic=topic, records=[{"data": data}], request_id=1)
        assert (message["op"], message["code"], message["request_id"]) == ("error", "throttled", 1)
        assert message["detail"] == {"limit": limit, "max": most}
    assert client.ask(op="publish", topic="t", records=[{"data": 1}])["op"] == "ack"


# Sessions


def test_the_number_of_sessions(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_WATCH_SESSIONS="2")
    server.topic("t")
    first, _ = session(server, ["t"]), session(server, ["t"])
    throttled(ask_session(server, {"t": {}}), "max_watch_sessions", 2)
    # What is wrong with the request itself is said first.
    ask_session(server, {}).refused(400, "invalid_request")
    streams.events(server, first["stream_url"]).next("caught-up")
    throttled(ask_session(server, {"t": {}}), "max_watch_sessions", 2)


# Streams

Opening = Callable[[Server, Streams], Answer]


def ask_watch(server: Server, streams: Streams) -> Answer:
    return streams.get(server, session(server, ["t"])["stream_url"]).refusal


def ask_work(server: Server, streams: Streams) -> Answer:
    return streams.get(server, "/v0/topics/q/work?node=w").refusal


def ask_socket(server: Server, streams: Streams) -> Answer:
    return server.fresh_request("GET", "/v0/ws", None, UPGRADE)


@pytest.mark.parametrize("refused", [ask_watch, ask_work, ask_socket])
def test_all_kinds_of_streams_share_the_places(boot: Boot, streams: Streams, refused: Opening) -> None:
    server = boot(TOPICS_MAX_SSE_CONNECTIONS="3")
    server.topic("t")
    server.topic("q", type="queue")
    places: list[Any] = [
        streams.watch(server, ["t"]),
        streams.work(server, "q", "node=w"),
        streams.socket(server),
    ]
    throttled(refused(server, streams), "max_sse_connections", 3)
    # Ordinary requests are not streams.
    TopicHandle(server, "t").write(1)
    for place in places:
        place.close()
    eventually(lambda: open_streams(server) == 0)


def open_streams(server: Server) -> int:
    found: int = server.send("GET", "/v0/metrics", Accept="application/json").json["sse_connections"]
    return found


def test_a_refused_stream_takes_no_place(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_SSE_CONNECTIONS="1")
    server.topic("t")
    url = session(server, ["t"])["stream_url"]
    for _ in range(3):
        streams.get(server, "/v0/watch/what").refusal.refused(404, "not_found")
        streams.get(server, "/v0/topics/t/work?node=w").refusal.refused(409, "not_a_queue")
        streams.get(server, url, Accept="text/html").refusal.refused(406, "not_acceptable")
        assert server.fresh_request("GET", "/v0/ws").status >= 400
    assert open_streams(server) == 0
    held = streams.events(server, url)
    for _ in range(3):
        throttled(ask_socket(server, streams), "max_sse_connections", 1)
    held.close()
    eventually(lambda: open_streams(server) == 0)
    client = streams.socket(server)
    assert client.ask(op="ping")["op"] == "pong"
    client.close()
    eventually(lambda: open_streams(server) == 0)


def test_a_stream_that_the_server_ends_gives_its_place_back(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_SSE_CONNECTIONS="2")
    topic, queue = server.topic("t"), server.topic("q", type="queue")
    watching, working = streams.watch(server, ["t"]), streams.work(server, "q", "node=w")
    topic.drop().ok()
    queue.drop().ok()
    watching.rest(), working.rest()
    eventually(lambda: open_streams(server) == 0)


def test_a_race_for_the_last_stream(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_SSE_CONNECTIONS="3")
    server.topic("t")
    urls = [session(server, ["t"])["stream_url"] for _ in range(8)]
    opened: list[EventReader] = []
    barrier = threading.Barrier(len(urls))

    def connect(url: str) -> None:
        barrier.wait()
        opened.append(streams.get(server, url))

    in_parallel(*[lambda url=url: connect(url) for url in urls])
    assert sorted(reader.status for reader in opened) == [200] * 3 + [429] * 5


def test_streams_of_one_key(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_API_KEYS="one,two", TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="2")
    one = server.client("one")
    one.send("PUT", "/v0/topics/t", {}).ok(201)
    one.send("PUT", "/v0/topics/q", {"type": "queue"}).ok(201)
    url = one.send("POST", "/v0/watch", {"topics": {"t": {}}}).ok()["stream_url"]
    one.close()
    held = streams.events(server, f"{url}?token=one")
    streams.work(server, "q", "node=w", **bearer("one"))
    refused = streams.get(server, "/v0/topics/q/work?node=w&token=one")
    throttled(refused.refusal, "max_sse_connections_per_key", 2)
    throttled(
        server.fresh_request("GET", "/v0/ws", None, UPGRADE | bearer("one")), "max_sse_connections_per_key", 2
    )
    streams.socket(server, **bearer("two"))
    streams.work(server, "q", "node=w&token=two")
    throttled(
        server.fresh_request("GET", "/v0/ws", None, UPGRADE | bearer("two")), "max_sse_connections_per_key", 2
    )
    held.close()
    eventually(lambda: server.fresh_request("GET", "/v0/ws", None, bearer("one")).status != 429)
    assert streams.socket(server, **bearer("one")).ask(op="ping")["op"] == "pong"


def test_streams_are_no_requests_in_flight(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_API_KEYS="one", TOPICS_MAX_INFLIGHT_PER_KEY="1")
    one = server.client("one")
    one.send("PUT", "/v0/topics/t", {}).ok(201)
    one.send("PUT", "/v0/topics/q", {"type": "queue"}).ok(201)
    url = one.send("POST", "/v0/watch", {"topics": {"t": {}}}).ok()["stream_url"]
    watching = streams.events(server, url, **bearer("one"))
    streams.work(server, "q", "node=w", **bearer("one"))
    client = streams.socket(server, **bearer("one"))
    one.send("POST", "/v0/topics/t", {"records": [{"data": 1}]}).ok()
    one.close()
    assert watching.until("record")[-1].data["to_seq"] == 1
    assert client.ask(op="publish", topic="t", records=[{"data": 2}])["op"] == "ack"


def test_in_open_mode_only_the_global_limit_acts(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1")
    for _ in range(3):
        assert streams.socket(server).ask(op="ping")["op"] == "pong"
    assert open_streams(server) == 3
