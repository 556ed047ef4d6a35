"""The socket: commands and their answers, subscriptions, and that it tells what other readers are told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from wsproto.events import BytesMessage, Ping, Pong

from tests.contract.conftest import NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, in_short
from tests.http.streaming import SocketClient


@pytest.fixture
def client(server: Server, streams: Streams) -> SocketClient:
    return streams.socket(server)


def subscribe(client: SocketClient, **fields: Any) -> Any:
    client.send(op="subscribe", **fields)
    return client.next("subscribed")


def until_level(client: SocketClient) -> list[tuple[str, Any]]:
    """Everything up to the next `caught_up`, in short."""
    found: list[tuple[str, Any]] = []
    while not found or found[-1][0] != "caught_up":
        message = client.read()
        assert message is not None
        found.append((message["op"], in_short(message["op"], message)))
    return found


def failed(client: SocketClient, code: str, request_id: Any = None) -> Any:
    """What the error says besides."""
    message = client.next("error")
    assert set(message) <= {"op", "request_id", "code", "message", "detail"}
    assert (message["code"], message["request_id"]) == (code, request_id)
    assert message["message"]
    return message.get("detail")


# Talking


@pytest.mark.parametrize("request_id", [1, "a", None, {"x": [1]}, [], 2.5, True])
def test_request_ids_come_back(client: SocketClient, request_id: Any) -> None:
    assert client.ask(op="ping", request_id=request_id) == {"op": "pong", "request_id": request_id}
    client.send(op="publish", topic="no name", records=[{"data": 1}], request_id=request_id)
    failed(client, "invalid_request", request_id)


def test_without_an_id_it_is_null(client: SocketClient) -> None:
    assert client.ask(op="ping") == {"op": "pong", "request_id": None}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", "[" * 100_000, '"ping"', "null", "{}", '{"op":"what"}', '{"op":5}', '{"op":"PING"}'],
)
def test_what_is_no_command(client: SocketClient, text: str) -> None:
    client.send_text(text)
    failed(client, "invalid_json")
    assert client.ask(op="ping")["op"] == "pong"


def test_an_unknown_command_is_answered_by_its_id(client: SocketClient) -> None:
    client.send(op="what", request_id=7)
    failed(client, "invalid_json", 7)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"op": "publish", "records": [{"data": 1}]}, "invalid_json"),
        ({"op": "publish", "topic": "t"}, "invalid_json"),
        ({"op": "subscribe"}, "invalid_request"),
        ({"op": "subscribe", "topics": {}}, "invalid_request"),
        ({"op": "unsubscribe"}, "invalid_request"),
        ({"op": "subscribe", "topic": "absent"}, "topic_not_found"),
        ({"op": "subscribe", "topic": "absent", "from_seq": -1}, "invalid_request"),
        ({"op": "publish", "topic": "t", "records": []}, "invalid_request"),
        ({"op": "publish", "topic": "t", "records": [{}]}, "invalid_request"),
        ({"op": "publish", "topic": "absent", "records": [{"data": 1}], "create": False}, "topic_not_found"),
        ({"op": "publish", "topic": "t", "records": [{"data": 1}] * 10_001}, "batch_too_large"),
    ],
)
def test_refused_commands(server: Server, client: SocketClient, command: Any, code: str) -> None:
    TopicHandle(server, "t").put()
    client.send(request_id=1, **command)
    failed(client, code, 1)
    assert client.ask(op="ping")["op"] == "pong"


def test_errors_have_the_detail_that_they_have_over_http(client: SocketClient, unborn: TopicHandle) -> None:
    client.send(op="subscribe", topic=unborn.name)
    assert failed(client, "topic_not_found") == {"topic": unborn.name}
    client.send(op="publish", topic=unborn.name, records=[])
    assert failed(client, "invalid_request") is None


def test_binary_messages_are_not_spoken(client: SocketClient) -> None:
    client.send_event(BytesMessage(data=b'{"op":"ping"}'))
    failed(client, "unsupported_message")
    assert client.ask(op="ping")["op"] == "pong"


def test_protocol_pings_are_answered(client: SocketClient) -> None:
    client.send_event(Ping(payload=b"there?"))
    event = client.event()
    assert isinstance(event, Pong)
    assert bytes(event.payload) == b"there?"


def test_a_plain_request_is_no_upgrade(server: Server) -> None:
    answer = server.fresh_request("GET", "/v0/ws")
    assert 400 <= answer.status < 500
    assert answer.json["error"]["code"] == "invalid_request"
    server.send("POST", "/v0/ws", {}).refused(405, "method_not_allowed")


# Publishing


def test_a_publish_is_a_write(server: Server, client: SocketClient, unborn: TopicHandle) -> None:
    records = [{"data": 1, "tag": "t", "meta": {"m": 1}}, {"data": 2, "node": "own"}]
    ack = client.ask(op="publish", request_id=1, topic=unborn.name, node="batch", records=records)
    assert ack.pop("performance")["server_total_ms"] >= 0
    assert ack == {
        "op": "ack",
        "request_id": 1,
        "topic": unborn.name,
        "epoch": unborn.state()["epoch"],
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    found = unborn.diff(include_tags=True)["records"]
    assert [(record["$node"], record.get("$tag")) for record in found] == [("batch", "t"), ("own", None)]
    again = client.ask(op="publish", topic=unborn.name, records=[{"data": 3}], return_seqs=False)
    assert again.get("seqs") is None
    assert (again["first_seq"], again["created"]) == (3, False)


def test_a_publish_may_be_repeated(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    message = {"op": "publish", "topic": topic.name, "records": [{"data": 1}], "idempotency_key": "k"}
    assert client.ask(**message)["deduped"] is False
    again = client.ask(**message)
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert topic.state()["head_seq"] == 1


def test_a_publish_may_bring_a_config(client: SocketClient, unborn: TopicHandle) -> None:
    ack = client.ask(op="publish", topic=unborn.name, records=[{"data": 1}], config={"cap_records": 5})
    assert ack["created"] is True
    assert unborn.state()["config"]["cap_records"] == 5


def test_a_full_topic_refuses_a_publish(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=1, discard="reject")
    topic.write(1)
    client.send(op="publish", topic=topic.name, records=[{"data": 2}], request_id=9)
    told = failed(client, "topic_full", 9)
    assert told == topic.post({"records": [{"data": 2}]}).refused(422, "topic_full")


# Subscriptions


def test_a_subscription_is_confirmed_before_it_speaks(
    server: Server, client: SocketClient, new_topic: NewTopic
) -> None:
    topic, tailed, third = new_topic(), new_topic(), new_topic(cap_records=2)
    for each in (topic, tailed, third):
        each.fill(4)
    client.send(
        op="subscribe",
        request_id="s",
        topic=topic.name,
        from_seq=1,
        topics={tailed.name: {"tail": True}, third.name: {}},
    )
    epochs = {each.name: each.state()["epoch"] for each in (topic, tailed, third)}
    assert client.next("subscribed") == {
        "op": "subscribed",
        "request_id": "s",
        "topics": {
            topic.name: {"from_seq": 1, "head_seq": 4, "earliest_seq": 1, "epoch": epochs[topic.name]},
            tailed.name: {"from_seq": 4, "head_seq": 4, "earliest_seq": 1, "epoch": epochs[tailed.name]},
            third.name: {"from_seq": 0, "head_seq": 4, "earliest_seq": 3, "epoch": epochs[third.name]},
        },
    }
    found: dict[str, list[Any]] = {}
    for _ in range(6):
        message = client.read()
        found.setdefault(message["topic"], []).append(message)
    [record, level] = found[topic.name]
    assert record == {
        "op": "record",
        "topic": topic.name,
        "from_seq": 1,
        "to_seq": 4,
        "head_seq": 4,
        "records": topic.diff(1)["records"],
        "epoch": epochs[topic.name],
    }
    assert level == {"op": "caught_up", "topic": topic.name, "head_seq": 4}
    assert [message["op"] for message in found[tailed.name]] == ["caught_up"]
    assert found[third.name][0] == {
        "op": "tombstone",
        "topic": third.name,
        "reason": "cap",
        "gap_from": 1,
        "gap_to": 2,
        "earliest_seq": 3,
        "head_seq": 4,
    }
    assert [message["op"] for message in found[third.name]] == ["tombstone", "record", "caught_up"]


def test_new_records_are_pushed(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    subscribe(client, topic=topic.name)
    assert until_level(client) == [("caught_up", 0)]
    topic.write(1, 2)
    assert until_level(client) == [("record", [1, 2]), ("caught_up", 2)]


def test_options_of_a_subscription(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records(
        {"data": 1, "tag": "t", "meta": {"m": 1}, "node": "a"},
        {"data": 2, "node": "b"},
        {"data": 3},
        {"data": 4},
    )
    subscribe(client, topic=topic.name, node=["b"], limit=2, include_data=False, include_tags=True)
    first = client.next("record")
    assert [set(record) for record in first["records"]] == [
        {"$seq", "$ts", "$tag", "$node", "meta"},
        {"$seq", "$ts"},
    ]
    assert (first["from_seq"], first["to_seq"]) == (0, 3)
    assert until_level(client) == [("record", [4]), ("caught_up", 4)]
    # Subscribing again replaces both the cursor and the options.
    subscribe(client, topic=topic.name, include_meta=False)
    record = client.next("record")
    assert set(record["records"][0]) == {"$seq", "$ts", "$node", "data"}
    assert [r["$seq"] for r in record["records"]] == [1, 2, 3, 4]


def test_a_frame_has_a_byte_budget(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(*["x" * 98] * 3)
    subscribe(client, topic=topic.name, max_batch_bytes=200)
    assert until_level(client) == [("record", [1, 2]), ("record", [3]), ("caught_up", 3)]


def test_one_unknown_topic_refuses_all_unless_lenient(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    client.send(op="subscribe", topics={topic.name: {}, "unknown": {}})
    failed(client, "topic_not_found")
    topic.write(1)
    assert client.ask(op="ping")["op"] == "pong"
    lenient = subscribe(client, topics={topic.name: {}, "unknown": {}}, lenient=True)
    assert set(lenient["topics"]) == {topic.name}
    assert until_level(client)[0] == ("record", [1])


def test_after_unsubscribing_there_is_silence(client: SocketClient, new_topic: NewTopic) -> None:
    first, second, third = new_topic(), new_topic(), new_topic()
    subscribe(client, topics={topic.name: {} for topic in (first, second, third)})
    for _ in range(3):
        client.next("caught_up")
    client.send(op="unsubscribe", request_id=5, topic=first.name, topics=[second.name])
    message = client.next("unsubscribed")
    assert (message["request_id"], sorted(message["topics"])) == (5, sorted([first.name, second.name]))
    first.write(1)
    second.write(1)
    third.write(1)
    assert client.next("record")["topic"] == third.name
    client.next("caught_up")
    assert client.ask(op="ping")["op"] == "pong"


def test_publishing_where_one_listens(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    subscribe(client, topic=topic.name)
    client.next("caught_up")
    client.send(op="publish", topic=topic.name, records=[{"data": 1}])
    assert {client.read()["op"] for _ in range(3)} == {"ack", "record", "caught_up"}


def test_deleted_topics_are_announced(client: SocketClient, new_topic: NewTopic) -> None:
    topic, other = new_topic(), new_topic()
    topic.fill(2)
    subscribe(client, topics={topic.name: {"tail": True}, other.name: {}})
    client.next("caught_up"), client.next("caught_up")
    topic.drop().ok()
    expected = {"op": "topic_deleted", "topic": topic.name, "head_seq": 2, "reason": "deleted"}
    assert client.read() == expected
    other.write(1)
    assert client.next("record")["topic"] == other.name
    client.next("caught_up")
    topic.write("reborn")
    assert client.ask(op="ping")["op"] == "pong"
    subscribe(client, topic=topic.name)
    assert until_level(client) == [("record", [1]), ("caught_up", 1)]


def test_later_gaps_on_a_socket(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    subscribe(client, topic=topic.name)
    client.next("caught_up")
    topic.write(*range(5))
    assert until_level(client) == [("tombstone", (1, 3, "cap")), ("record", [4, 5]), ("caught_up", 5)]


def test_a_cursor_from_the_future_starts_over(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    subscribe(client, topic=topic.name, from_seq=9)
    messages = until_level(client)
    assert messages[0][0] == "tombstone"
    assert messages[0][1][2] == "recreated"
    assert messages[1:] == [("record", [1, 2]), ("caught_up", 2)]


def test_large_messages_pass_both_ways(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    subscribe(client, topic=topic.name)
    client.next("caught_up")
    text = "é" + "x" * 600_000
    client.send(op="publish", topic=topic.name, records=[{"data": text}])
    messages = {message["op"]: message for message in (client.read() for _ in range(3))}
    assert messages["record"]["records"][0]["data"] == text


# All readers agree


@pytest.mark.parametrize("seed", range(4))
def test_diff_stream_and_socket_tell_the_same(
    server: Server, streams: Streams, client: SocketClient, new_topic: NewTopic, seed: int
) -> None:
    chance = random.Random(seed)
    topic = new_topic(cap_records=12)
    for number in range(30):
        topic.records({"data": number, "tag": f"t{number % 3}", "node": f"n{chance.randrange(3)}"})
        if chance.random() < 0.15:
            topic.delete(match=f"t{chance.randrange(3)}")
        if chance.random() < 0.1:
            topic.delete(before_seq=chance.randrange(number + 1))
    for from_seq in (0, *chance.sample(range(1, 30), 5), 30):
        records, gaps = topic.drain(from_seq, node="n1", limit=4)
        expected = [gap_of(gap) for gap in gaps] + [record["$seq"] for record in records]
        reader = streams.watch(server, {topic.name: {"from_seq": from_seq}}, node="n1", limit=4)
        frames = reader.until("caught-up")
        assert flat([(frame.event, frame.data) for frame in frames]) == expected
        assert frames[-1].cursors == {topic.name: 30}
        subscribe(client, topic=topic.name, from_seq=from_seq, node="n1", limit=4)
        messages: list[Any] = []
        while not messages or messages[-1]["op"] != "caught_up":
            messages.append(client.read())
        assert flat([(message["op"], message) for message in messages]) == expected
        pushed = [record for m in messages if m["op"] == "record" for record in m["records"]]
        assert pushed == records


def gap_of(gap: Any) -> tuple[int, int, int, int]:
    """Where it is; the reason of a stream's first gap goes by another name."""
    return gap["gap_from"], gap["gap_to"], gap["earliest_seq"], gap["head_seq"]


def flat(messages: list[tuple[str, Any]]) -> list[Any]:
    found: list[Any] = []
    for event, data in messages:
        if event == "tombstone":
            found.append(gap_of(data))
        elif event == "record":
            found += [record["$seq"] for record in data["records"]]
    return found
