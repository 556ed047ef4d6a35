"""Work streams over real sockets: what they deliver, when they refill, and what becomes of their leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.queue_app import LEASE_MS, QueueApp
from tests.http.streaming import EventReader
from tests.support import eventually
from topics.flow.queues import dispatcher
from topics.http.routes import work as work_stream


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


def seqs(reader: EventReader, count: int) -> list[int]:
    return [reader.next("job").data["$seq"] for _ in range(count)]


def test_nobody_waits_for_the_next_look(app: QueueApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes, acks, nacks and hang-ups are noticed at once; only what ends by itself has to be looked for."""
    monkeypatch.setattr(dispatcher, "POLL_S", 3600)
    reader = app.work("node=w")
    assert reader.block() == "retry: 2000"
    app.write("q", 1)
    assert seqs(reader, 1) == [1]
    app.do("nack", node="w", seqs=[1])
    assert seqs(reader, 1) == [1]
    app.write("q", 2)
    app.do("ack", node="w", seqs=[1])
    assert seqs(reader, 1) == [2]
    other = app.work("node=v")
    assert other.block() == "retry: 2000"
    reader.close()
    assert seqs(other, 1) == [2]


@pytest.mark.parametrize(("most", "count"), [("0", 1), ("many", 1), ("-3", 1), ("3", 3), ("", 1)])
def test_max_is_one_unless_it_is_a_number(app: QueueApp, most: str, count: int) -> None:
    app.write("q", *range(5))
    reader = app.work(f"node=w&max={most}")
    assert seqs(reader, count) == list(range(1, count + 1))
    assert app.counters() == (5 - count, count, 0)


@pytest.mark.parametrize(
    ("lease_ms", "expected"), [("5000", 5000), ("1", 100), ("soon", LEASE_MS), ("", LEASE_MS)]
)
def test_the_lease_may_be_asked_for(app: QueueApp, lease_ms: str, expected: int) -> None:
    app.write("q", 1)
    frame = app.work(f"node=w&lease_ms={lease_ms}").next("job")
    assert frame.data["deadline"] == app.clock.now_ms() + expected


def test_single_jobs_go_to_one_stream_after_the_other(app: QueueApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "POLL_S", 3600)
    readers = [app.work(f"node=w{number}&max=10") for number in range(3)]
    eventually(lambda: app.inside(lambda: app.app.stream_slots.open) == 3)
    for number in range(3):
        app.write("q", number)
    assert sorted(seqs(reader, 1) for reader in readers) == [[1], [2], [3]]


def test_a_refill_joins_the_window_of_a_cohort(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    reader = app.work("node=w&max=2")
    assert reader.block() == "retry: 2000"
    assert app.window() == []
    app.write("q", 1)
    eventually(lambda: len(app.window()) == 1)
    app.write("q", 2)
    [claim] = app.window()
    assert claim.wanted == 2
    app.close_window()
    assert seqs(reader, 2) == [1, 2]


def test_a_stream_that_ends_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    reader = app.work()
    eventually(lambda: len(app.window()) == 1)
    reader.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)


def test_an_idle_stream_shows_signs_of_life(app: QueueApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_stream.WorkStream, "heartbeat_s", 0.01)
    reader = app.work()
    assert [reader.block(), reader.block(), reader.block()] == ["retry: 2000", ": hb", ": hb"]


def test_streams_have_a_limit_and_places_come_back(tmp_path: Path) -> None:
    app = QueueApp(tmp_path, max_sse_connections=1)
    try:
        app.put()
        reader = app.work()
        refusal = app.work().refusal
        assert (refusal.status, refusal.json["error"]["detail"]) == (
            429,
            {"limit": "max_sse_connections", "max": 1},
        )
        reader.close()
        eventually(lambda: app.inside(lambda: app.app.stream_slots.open) == 0)
        assert app.work().status == 200
    finally:
        app.stop()


def test_a_token_in_the_query_is_a_key_with_both_scopes(tmp_path: Path) -> None:
    app = QueueApp(tmp_path, api_keys="all,both:rw,reader:read", max_sse_connections_per_key=1)
    try:
        key = {"Authorization": "Bearer all"}
        assert app.call("PUT", "/v0/topics/q", {"type": "queue"}, **key).status == 201
        assert app.work("node=w").status == 401
        assert app.work("node=w&token=reader").status == 403
        assert app.work("node=w&token=both").status == 200
        refusal = app.work("node=w&token=both").refusal
        assert refusal.json["error"]["detail"] == {"limit": "max_sse_connections_per_key", "max": 1}
        assert app.work("node=w&token=all").status == 200
    finally:
        app.stop()


def test_a_stopping_server_says_so_and_takes_its_jobs_back(tmp_path: Path) -> None:
    app = QueueApp(tmp_path)
    app.put(leases_durable=True)
    app.write("q", 1)
    reader = app.work()
    assert seqs(reader, 1) == [1]
    app.begin_stop()
    [last] = reader.rest()
    assert (last.event, last.id) == ("error", None)
    assert last.data["code"] == "server_shutting_down"
    assert last.data["message"]
    app.stop()
    again = QueueApp(tmp_path)
    try:
        assert again.counters() == (1, 0, 0)
    finally:
        again.stop()
