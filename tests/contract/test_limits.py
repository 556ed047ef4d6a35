"""Resource caps: exactly at the limit is allowed, the next one is refused, places come back."""

from __future__ import annotations

import threading
import time
from functools import partial

from tests.contract.conftest import Boot
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.support import Answer, eventually


def throttled(answer: Answer, limit: str, maximum: int) -> None:
    assert answer.refused(429, "throttled") == {"limit": limit, "max": maximum}
    assert answer.headers["retry-after"] == "1"


def test_the_number_of_topics(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOPICS="3")
    topics = [server.topic(f"t{number}") for number in range(3)]
    extra = TopicHandle(server, "extra")
    throttled(server.send("PUT", extra.path, {}), "max_topics", 3)
    throttled(extra.post({"records": [{"data": 1}]}), "max_topics", 3)
    throttled(extra.post({"records": [{"data": 1}], "disable_backpressure": True}), "max_topics", 3)
    server.send("GET", extra.path).refused(404, "topic_not_found")
    extra.post({"records": [{"data": 1}], "create": False}).refused(404, "topic_not_found")
    assert server.send("PUT", topics[0].path, {"cap_records": 1}).ok(200)["created"] is False
    topics[1].write("still open")
    topics[2].drop().ok()
    extra.write("now there is room")
    throttled(server.send("PUT", topics[2].path, {}), "max_topics", 3)
    server.restart(cleanly=False)
    throttled(server.send("PUT", topics[2].path, {}), "max_topics", 3)
    server.restart(cleanly=True, TOPICS_MAX_TOPICS="1")
    assert len(server.send("GET", "/v0/topics").ok()["topics"]) == 3
    server.send("PUT", topics[0].path, {}).ok(200)
    throttled(server.send("PUT", topics[2].path, {}), "max_topics", 1)
    server.restart(cleanly=True, TOPICS_MAX_TOPICS="0")
    server.send("PUT", topics[2].path, {}).ok(201)


def test_a_race_for_the_last_places_never_overshoots(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOPICS="5")
    statuses: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        client = server.client()
        barrier.wait()
        for turn in range(3):
            path = f"/v0/topics/t{number}-{turn}"
            if turn % 2:
                statuses.append(client.send("PUT", path, {}).status)
            else:
                statuses.append(client.send("POST", path, {"records": [{"data": 1}]}).status)
        client.close()

    in_parallel(*[partial(create, number) for number in range(8)])
    assert sorted(statuses) == [201] * 5 + [429] * 19
    assert len(server.send("GET", "/v0/topics").ok()["topics"]) == 5


def data(size: int) -> str:
    """A payload that counts for so many bytes."""
    return "x" * (size - 2)


def test_the_total_of_bytes(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOTAL_BYTES="1000")
    one, other = server.topic("one"), server.topic("other")
    one.write(data(600))
    other.write(data(400), idempotency_key="k")
    refused = other.post({"records": [{"data": 1}]})
    throttled(refused, "max_total_bytes", 1000)
    throttled(other.post({"records": [{"data": 1}], "disable_backpressure": True}), "max_total_bytes", 1000)
    assert (other.state()["head_seq"], other.state()["bytes"], other.state()["count"]) == (1, 400, 1)
    # A retry adds nothing.
    assert other.write(data(400), idempotency_key="k")["deduped"] is True

    server.restart(cleanly=False)
    throttled(other.post({"records": [{"data": 1}]}), "max_total_bytes", 1000)
    one.delete(before_seq=2)
    other.write(data(600))
    throttled(one.post({"records": [{"data": 1}]}), "max_total_bytes", 1000)
    other.drop().ok()
    one.write(data(1000))
    one.put(cap_bytes=10)
    one.put(ttl_ms=150)
    one.write(data(1000))
    throttled(other.post({"records": [{"data": 1}]}), "max_total_bytes", 1000)
    time.sleep(0.3)
    other.write(data(1000))
    throttled(TopicHandle(server, "third").post({"records": [{"data": data(1001)}]}), "max_total_bytes", 1000)


def test_a_full_topic_is_reported_before_a_full_server(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOTAL_BYTES="10")
    topic = server.topic("t", cap_records=1, discard="reject")
    topic.write(1)
    topic.post({"records": [{"data": data(50)}]}).refused(422, "topic_full")
    topic.post({"records": [{"data": 1}, {"data": 2}]}).refused(400, "record_too_large")


def test_racing_writers_never_pass_the_total(boot: Boot) -> None:
    server = boot(TOPICS_MAX_TOTAL_BYTES="2000")
    for number in range(4):
        server.topic(f"t{number}", durability="fsync")
    accepted: list[int] = []

    def write(number: int) -> None:
        client = server.client()
        for _ in range(10):
            answer = client.send("POST", f"/v0/topics/t{number}", {"records": [{"data": data(100)}]})
            accepted.append(answer.status)
        client.close()

    in_parallel(*[partial(write, number) for number in range(4)])
    assert sorted(accepted) == [200] * 20 + [429] * 20
    listed = server.send("GET", "/v0/topics").ok()["topics"]
    assert sum(entry["bytes"] for entry in listed) == 2000


def hold_one_request(server: Server, key: str) -> bytes:
    body = b'{"from_seq":0,"wait_ms":20000}'
    head = b"POST /v0/topics/quiet/diff HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key.encode()
    return head + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_requests_in_flight_are_counted_per_key_and_before_everything_but_the_key(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="one,two:write:harbor.", TOPICS_MAX_INFLIGHT_PER_KEY="2")
    client, limited = server.client("one"), server.client("two")
    client.send("PUT", "/v0/topics/quiet", {}).ok(201)
    with (
        server.raw(hold_one_request(server, "one")) as first,
        server.raw(hold_one_request(server, "one")) as second,
    ):
        eventually(lambda: client.send("GET", "/v0/topics").status != 200, 5)
        throttled(client.send("GET", "/v0/topics"), "max_inflight_per_key", 2)
        # Before scope, name, route and body; but not before the key.
        throttled(client.send("GET", "/v0/nowhere"), "max_inflight_per_key", 2)
        throttled(client.send("POST", "/v0/topics/quiet", b"{"), "max_inflight_per_key", 2)
        server.fresh_request("GET", "/v0/topics").refused(401, "unauthorized")
        # Another key has places of its own; probes need none.
        limited.send("GET", "/v0/topics/quiet").refused(403, "forbidden")
        limited.send("POST", "/v0/topics/harbor.x", {"records": [{"data": 1}]}).ok(201)
        assert client.send("GET", "/v0/health").status == 200
        first.close()
        eventually(lambda: client.send("GET", "/v0/topics").status == 200, 5)
        client.send("POST", "/v0/topics/quiet", {"records": [{"data": 1}]})
        assert second.read().ok()["next_from_seq"] == 1
    client.close()
    limited.close()


def test_a_busy_key_still_opens_probes_and_metrics(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="one", TOPICS_MAX_INFLIGHT_PER_KEY="1", TOPICS_PROBE_AUTH="1")
    client = server.client("one")
    client.send("PUT", "/v0/topics/quiet", {}).ok(201)
    with server.raw(hold_one_request(server, "one")):
        eventually(lambda: client.send("GET", "/v0/topics").status == 429, 5)
        for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/metrics"):
            # More than once: a head that is known takes a shorter way.
            for _ in range(3):
                assert client.send("GET", path).status == 200, path
            server.fresh_request("GET", path).refused(401, "unauthorized")
    client.close()


def test_without_keys_there_is_nobody_to_count_for(boot: Boot) -> None:
    server = boot(TOPICS_MAX_INFLIGHT_PER_KEY="1")
    server.topic("quiet")
    with server.raw(hold_one_request(server, "x")):
        time.sleep(0.1)
        server.send("GET", "/v0/topics").ok()
