"""Keys of writes: what a retry is told, over restarts too, and what bounds the memory of it."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams
from tests.support.arrow import arrow_stream

TOLD = ("topic", "first_seq", "last_seq", "seqs", "count", "head_seq", "epoch")


def told(answer: Any) -> dict[str, Any]:
    return {name: answer.get(name) for name in TOLD}


# The answer


def test_a_write_may_ask_not_to_be_told_its_seqs(new_topic: NewTopic) -> None:
    topic = new_topic()
    for fields, query, has_seqs in (
        ({}, "", True),
        ({"return_seqs": True}, "", True),
        ({"return_seqs": False}, "", False),
        ({"return_seqs": True}, "?return_seqs=false", False),
        ({"return_seqs": False}, "?return_seqs=true", False),
        ({}, "?return_seqs=true", True),
    ):
        for records in ([{"data": 1}], [{"data": 1}, {"data": 2, "tag": "x"}]):
            answer = topic.post({"records": records, **fields}, query).ok()
            assert ("seqs" in answer) is has_seqs, (fields, query)
            assert answer["count"] == len(records)
    for wrong in (None, 0, "false"):
        topic.post({"records": [{"data": 1}], "return_seqs": wrong}).refused(400, "invalid_request")


def test_every_answer_to_a_write_says_in_which_life_of_the_topic(
    server: Server, unborn: TopicHandle, streams: Streams
) -> None:
    """Alone, together, as a batch, over a socket, as Arrow, in a stage, and again."""
    epochs = []
    for _ in range(2):
        answers = [unborn.write(1), unborn.write(2), unborn.write(3, 4)]
        answers += [unborn.write(5, idempotency_key="k"), unborn.write(5, idempotency_key="k")]
        socket = streams.socket(server)
        answers.append(socket.ask(op="publish", topic=unborn.name, records=[{"data": 6}]))
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
        body = arrow_stream({"data": ["7"]}, {"data": ["8"]})
        answers.append(server.fresh_request("POST", unborn.path + "/append", body, arrow).ok())
        stage = f"/v0/stages/{unborn.name}"
        server.fresh_request("PUT", f"{stage}/parts/0", arrow_stream({"data": ["9"]}), arrow).ok()
        identity = {"id": unborn.name, "batch": len(epochs)}
        commit = {"identity": identity, "parts": ["0"], "topic": unborn.name}
        answers.append(server.send("POST", f"{stage}/commit", commit).ok()["topics"][unborn.name])
        answers.append(server.send("POST", f"{stage}/commit", commit).ok()["topics"][unborn.name])
        assert {answer["epoch"] for answer in answers} == {unborn.state()["epoch"]}
        epochs.append(unborn.state()["epoch"])
        unborn.drop().ok()
    assert epochs[1] > epochs[0]


# Over restarts


def test_a_retry_over_a_restart_hears_what_the_first_one_heard(boot: Boot, streams: Streams) -> None:
    """In every class that keeps its records, and whichever way they were written."""
    server = boot()
    topics = [server.topic(durability, durability=durability) for durability in ("memory", "disk", "fsync")]

    def write_all(topic: TopicHandle, value: Any) -> list[Any]:
        header = {"Idempotency-Key": "in the header"}
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": "arrow"}
        publish = {"op": "publish", "topic": topic.name, "records": [{"data": value}]}
        bulk = arrow_stream({"data": ["7"]}, {"data": ["8", "9"]})
        return [
            topic.write(value, idempotency_key="single"),
            topic.write(value, value, idempotency_key="batch"),
            topic.post({"records": [{"data": value}]}, **header).ok(),
            streams.socket(server).ask(**publish, idempotency_key="socket"),
            *server.fresh_request("POST", topic.path + "/append", bulk, arrow).ok()["batches"],
        ]

    first = []
    for topic in topics:
        topic.write("before")
        first.append(write_all(topic, "first"))
        topic.write("after")
    assert not any(answer["deduped"] for answers in first for answer in answers)
    for cleanly in (False, True, False):
        server.restart(cleanly=cleanly)
        for topic, answers in zip(topics, first, strict=True):
            again = write_all(topic, "again")
            assert all(answer["deduped"] for answer in again)
            assert [told(answer) for answer in again] == [told(answer) for answer in answers]
            assert topic.seqs() == list(range(1, 11))


def test_windows_go_on_over_a_restart_and_what_it_takes_takes_its_keys_along(boot: Boot) -> None:
    server = boot()
    names = {"short": {"idempotency_window_ms": 1500}, "long": {}, "ephemeral": {"durability": "ephemeral"}}
    topics = [server.topic(name, **config) for name, config in (*names.items(), ("dropped", {}))]
    for _ in range(2):
        for topic in topics:
            topic.write(1, idempotency_key="k")
    assert [topic.state()["head_seq"] for topic in topics] == [1, 1, 1, 1]
    topics[3].drop().ok()
    topics[3].put()
    server.restart(cleanly=False)
    time.sleep(1.6)
    again = [topic.write(1, idempotency_key="k") for topic in topics]
    assert [answer["deduped"] for answer in again] == [False, True, False, False]
    assert [answer["first_seq"] for answer in again] == [2, 1, 2, 1]


# Bounds


def metric(server: Server, name: str) -> float:
    text = server.send("GET", "/v0/metrics").body.decode()
    (found,) = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found)


def test_bounds_are_kept_counted_and_told(boot: Boot) -> None:
    server = boot(TOPICS_MAX_IDEMPOTENCY_KEYS="5", TOPICS_MAX_IDEMPOTENCY_KEYS_PER_TOPIC="3")
    topic, other = server.topic("t", idempotency_window_ms=600_000), server.topic("u")
    assert (topic.state()["idempotency_kept_ms"], other.state()["idempotency_kept_ms"]) == (600_000, 120_000)
    for number in range(5):
        topic.write(number, idempotency_key=f"k{number}")
    assert topic.state()["idempotency_kept_ms"] < 60_000, "keys were forgotten a moment ago"
    assert other.state()["idempotency_kept_ms"] == 120_000
    assert metric(server, "topics_idempotency_keys") == 3
    assert metric(server, "topics_idempotency_keys_forgotten_total") == 2
    assert topic.write(0, idempotency_key="k2")["seqs"] == [3]
    for number in range(3):
        other.write(number, idempotency_key=f"k{number}")
    assert metric(server, "topics_idempotency_keys") == 5
    assert metric(server, "topics_idempotency_keys_forgotten_total") == 3
    assert topic.write(0, idempotency_key="k2")["deduped"] is False, "it was the oldest of all"
    assert other.write(0, idempotency_key="k2")["deduped"] is True


def test_large_writes_are_not_kept_for_the_sake_of_their_keys(boot: Boot) -> None:
    """A digest and the answer: 80 MB that are written with keys do not stay in memory."""
    server = boot(TOPICS_HOT_BYTES="4000000", TOPICS_SEGMENT_MAX_BYTES="2000000")
    topic = server.topic("t", cap_records=2)
    topic.write("x" * 1_000_000, idempotency_key="warm")
    before = metric(server, "process_resident_memory_bytes")
    for number in range(80):
        topic.write("x" * 1_000_000, idempotency_key=f"k{number}")
    assert topic.write("y", idempotency_key="k0")["deduped"] is True
    grown = metric(server, "process_resident_memory_bytes") - before
    assert grown < 40_000_000, f"{grown / 1e6:.0f} MB"


# A producer that retries over restarts

RECORDS = 40_000
PRODUCERS = 4
# Requests that a producer sends before it looks at the answers.
AHEAD = 64
KILLS = 4


class Producer:
    """Sends each of its records once, and whatever was not answered again, with the same key."""

    def __init__(self, server: Server, numbers: range) -> None:
        self._server = server
        self._left = list(numbers)
        self.answered: dict[int, int] = {}
        self.repeated = 0

    def run(self) -> None:
        while self._left:
            try:
                self._send_all()
            except (OSError, EOFError):
                # The server is gone, or not there yet.
                time.sleep(0.02)

    def forget_answers(self, count: int) -> None:
        """As if the last ones had been lost on their way: they are sent again."""
        self._left = list(self.answered)[-count:]

    def _send_all(self) -> None:
        with socket.create_connection(self._server.host_and_port, timeout=30) as connection:
            answers = _answers(connection)
            while self._left:
                sent = self._left[:AHEAD]
                connection.sendall(b"".join(map(_request, sent)))
                for number in sent:
                    status, body = next(answers)
                    if status != 200:
                        raise EOFError
                    self.answered[number] = body["first_seq"]
                    self.repeated += body["deduped"]
                    self._left.remove(number)


def _request(number: int) -> bytes:
    body = b'{"records":[{"data":%d}],"idempotency_key":"order-%d"}' % (number, number)
    head = b"POST /v0/topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _answers(connection: socket.socket) -> Iterator[tuple[int, Any]]:
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            buffer += _more(connection)
        head, buffer = buffer.split(b"\r\n\r\n", 1)
        size = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
        while len(buffer) < size:
            buffer += _more(connection)
        yield int(head[9:12]), json.loads(buffer[:size])
        buffer = buffer[size:]


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise EOFError
    return data


@pytest.mark.timeout(180)
def test_a_producer_that_retries_over_restarts_writes_every_record_once(boot: Boot) -> None:
    server = boot(TOPICS_SEGMENT_MAX_EVENTS="3000")
    topic = server.topic("orders")
    share = RECORDS // PRODUCERS
    producers = [Producer(server, range(n * share, (n + 1) * share)) for n in range(PRODUCERS)]
    threads = [threading.Thread(target=producer.run, daemon=True) for producer in producers]
    for thread in threads:
        thread.start()
    for kill in range(1, KILLS + 1):
        while sum(len(producer.answered) for producer in producers) < kill * RECORDS // (KILLS + 1):
            time.sleep(0.001)
        server.restart(cleanly=False)
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    by_chance = sum(producer.repeated for producer in producers)
    print(f"{by_chance} writes were repeated that had been committed before")
    first_answers = [dict(producer.answered) for producer in producers]
    server.restart(cleanly=False)
    for producer, answered in zip(producers, first_answers, strict=True):
        producer.forget_answers(AHEAD)
        producer.run()
        assert producer.answered == answered
    assert sum(producer.repeated for producer in producers) == by_chance + PRODUCERS * AHEAD
    records, gaps = topic.drain(limit=1000)
    assert not gaps
    assert len(records) == topic.state()["head_seq"] == RECORDS, "a record is there twice, or missing"
    where = {record["data"]: record["$seq"] for record in records}
    assert len(where) == RECORDS
    for producer in producers:
        assert all(where[number] == seq for number, seq in producer.answered.items())
