"""Waiting for records: what wakes a reader, what it then gets, and how a wait ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle, checked_page
from tests.support import Answer, eventually

LONG_MS = 20_000


class Waiting:
    """A diff under way on a connection of its own."""

    def __init__(self, topic: TopicHandle, fields: dict[str, Any]) -> None:
        self._client = topic.server.client()
        self.answers: list[Answer] = []
        self._thread = threading.Thread(target=self._ask, args=(topic, fields))
        self._thread.start()
        time.sleep(0.1)
        assert not self.answers, "it was to wait, and did not"

    def _ask(self, topic: TopicHandle, fields: dict[str, Any]) -> None:
        self.answers.append(self._client.send("POST", topic.path + "/diff", fields))

    def answer(self) -> Answer:
        self._thread.join(10)
        assert self.answers, "nothing woke the reader"
        return self.answers[0]

    def close(self) -> None:
        self._thread.join(LONG_MS / 1000 + 5)
        self._client.close()


@contextmanager
def waiting(topic: TopicHandle, from_seq: int = 0, **fields: Any) -> Iterator[Waiting]:
    reader = Waiting(topic, {"from_seq": from_seq, "wait_ms": LONG_MS, **fields})
    try:
        yield reader
    finally:
        reader.close()


def test_a_write_wakes_the_reader(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    with waiting(topic, 2) as reader:
        topic.write("new")
        page = checked_page(reader.answer().ok(), 2)
    assert [record["data"] for record in page["records"]] == ["new"]
    assert (page["next_from_seq"], page["caught_up"]) == (3, True)


@pytest.mark.parametrize("ended_by", ["record", "deadline"])
def test_the_reader_was_there_until_it_was_answered(new_topic: NewTopic, ended_by: str) -> None:
    topic = new_topic()
    with waiting(topic, wait_ms=LONG_MS if ended_by == "record" else 300) as reader:
        began = topic.state()["last_read_ts"]
        if ended_by == "record":
            topic.write(1)
        reader.answer()
    assert topic.state()["last_read_ts"] > began


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_wakes(new_topic: NewTopic, durability: str) -> None:
    topic = new_topic(durability=durability)
    with waiting(topic) as reader:
        topic.write("a", "b")
        assert len(reader.answer().ok()["records"]) == 2


def test_all_waiting_readers_wake(new_topic: NewTopic) -> None:
    topic = new_topic()
    with waiting(topic) as one, waiting(topic) as other:
        topic.write(1)
        assert one.answer().ok()["next_from_seq"] == 1
        assert other.answer().ok()["next_from_seq"] == 1


def test_a_filtered_record_wakes_with_an_empty_page_and_an_advanced_cursor(new_topic: NewTopic) -> None:
    topic = new_topic()
    with waiting(topic, node="own") as reader:
        topic.records({"data": 1, "node": "own"})
        page = checked_page(reader.answer().ok(), 0)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)


def test_a_record_evicted_at_once_wakes_with_a_tombstone(new_topic: NewTopic) -> None:
    topic = new_topic(cap_bytes=2)
    with waiting(topic) as reader:
        topic.write("too large")
        page = checked_page(reader.answer().ok(), 0)
    assert page["tombstone"]["reason"] == "cap"


def test_the_options_of_the_request_hold_after_the_wake(new_topic: NewTopic) -> None:
    topic = new_topic()
    with waiting(topic, limit=1, include_tags=True, include_meta=False) as reader:
        topic.records({"data": 1, "tag": "t", "meta": {"m": 1}}, {"data": 2})
        page = reader.answer().ok()
    assert page["next_from_seq"] == 1
    assert set(page["records"][0]) == {"$seq", "$ts", "$tag", "data"}


def test_a_delete_or_a_new_config_does_not_end_the_wait(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    with waiting(topic, 3) as reader:
        topic.delete(before_seq=3)
        topic.put(cap_records=5)
        time.sleep(0.1)
        assert not reader.answers
        topic.write("now")
        assert reader.answer().ok()["next_from_seq"] == 4


def test_a_deduplicated_retry_does_not_end_the_wait(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(1, idempotency_key="k")
    with waiting(topic, 1) as reader:
        topic.write(1, idempotency_key="k")
        time.sleep(0.1)
        assert not reader.answers
        topic.write(2)
        assert reader.answer().ok()["next_from_seq"] == 2


def test_dropping_the_topic_ends_the_wait(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(1)
    with waiting(topic, 1) as reader:
        topic.drop().ok()
        answer = reader.answer()
    if answer.status == 404:
        answer.refused(404, "topic_not_found")
    else:
        assert answer.ok()["records"] == []


def test_the_deadline_ends_the_wait_with_the_empty_answer(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "node": "own"})
    began = time.monotonic()
    page = topic.diff(0, node="own", wait_ms=300)
    assert time.monotonic() - began >= 0.29
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)
    assert page["tombstone"] is None


def test_the_answer_at_the_deadline_never_shows_a_floor_that_has_fallen_back(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    with waiting(topic, 3, wait_ms=800) as reader:
        shown = topic.delete(before_seq=3)["earliest_seq"]
        page = checked_page(reader.answer().ok(), 3)
    assert (page["records"], page["next_from_seq"], page["earliest_seq"]) == ([], 3, shown)


def test_the_answer_at_the_deadline_knows_what_time_has_taken(new_topic: NewTopic) -> None:
    topic = new_topic(ttl_ms=200)
    topic.fill(2)
    page = topic.diff(2, wait_ms=700)
    assert (page["records"], page["next_from_seq"], page["earliest_seq"]) == ([], 2, 3)
    assert page["tombstone"] is None


def test_any_other_answer_returns_at_once(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    topic.write(*range(5))
    began = time.monotonic()
    assert topic.seqs(3, wait_ms=LONG_MS) == [4, 5]
    assert topic.diff(9, wait_ms=LONG_MS)["tombstone"]["reason"] == "recreated"
    topic.delete(before_seq=100)
    assert topic.diff(0, wait_ms=LONG_MS)["tombstone"]["reason"] == "cap"
    assert topic.diff(5, wait_ms=0)["records"] == []
    assert time.monotonic() - began < LONG_MS / 1000
    topic.ask_diff(from_seq=5, wait_ms=-1).refused(400, "invalid_request")


def test_no_write_falls_between_the_read_and_the_wait(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    total = 200

    def produce() -> None:
        client = server.client()
        for number in range(total):
            client.send("POST", topic.path, {"records": [{"data": number}]}).ok()
        client.close()

    producer = threading.Thread(target=produce)
    producer.start()
    seen: list[int] = []
    cursor = 0
    while len(seen) < total:
        page = topic.diff(cursor, wait_ms=5000)
        assert page["records"], "the reader slept through a write"
        seen += [record["data"] for record in page["records"]]
        cursor = page["next_from_seq"]
    producer.join()
    assert seen == list(range(total))


def test_a_reader_that_hangs_up_frees_its_place_at_once(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="k", TOPICS_MAX_INFLIGHT_PER_KEY="1")
    client = server.client("k")
    client.send("PUT", "/v0/topics/t", {}).ok(201)
    body = b'{"wait_ms":20000}'
    head = b"POST /v0/topics/t/diff HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server.raw(head + body):
        eventually(lambda: client.send("GET", "/v0/topics/t").status != 200, 5)
        answer = client.send("GET", "/v0/topics/t")
        detail = answer.refused(429, "throttled")
        assert detail == {"limit": "max_inflight_per_key", "max": 1}
        assert answer.headers["retry-after"] == "1"
    eventually(lambda: client.send("GET", "/v0/topics/t").status == 200, 5)
    client.close()


def test_a_clean_stop_answers_waiting_readers(boot: Boot) -> None:
    server = boot()
    topic = server.topic("t")
    with waiting(topic) as reader:
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 10
        answer = reader.answer()
    assert answer.status in (200, 503)
