"""Small writes sent one behind the other: written together, and to their client as if one by one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.streaming import RunningApp
from tests.support import Wire, eventually, raw_request
from tests.support.accelerated import both_ways
from topics.http.wire.bundle import MOST_REQUESTS, bundle_in
from topics.http.wire.known_requests import KnownRequests

__all__ = ["both_ways"]
pytestmark = pytest.mark.usefixtures("both_ways")
KEY = "k" * 20
HEALTH = raw_request("GET", "/v0/health")


def append(number: int, key: str | None = None, topic: str = "t", **headers: str) -> bytes:
    named = {**headers, "Idempotency-Key": key} if key else headers
    return raw_request("POST", f"/v0/topics/{topic}", b'{"records":[{"data":%d}]}' % (1000 + number), named)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path / "data")
    app.call("PUT", "/v0/topics/t", {})
    yield app
    app.stop()


def known_to(app: RunningApp, *requests: bytes) -> Wire:
    """A connection to a server that has seen requests like these."""
    wire = app.wire()
    for request in (HEALTH, *requests):
        wire.send(request)
        assert wire.read().status == 200
    return wire


def batches(app: RunningApp) -> int:
    """How often the journal has been written."""
    return int(app.inside(lambda: app.app.node.engine.counters.batches))


def stored(app: RunningApp) -> list[Any]:
    told = app.call("POST", "/v0/topics/t/diff", {"from_seq": 0, "limit": 1000}).json
    return [record["data"] - 1000 for record in told["records"]]


@pytest.mark.parametrize("key", [None, KEY])
def test_what_comes_in_one_piece_is_written_at_once(app: RunningApp, key: str | None) -> None:
    wire = known_to(app, append(0, key))
    before = batches(app)
    wire.send(b"".join(append(n, key and f"{n:020}") for n in range(1, 33)))
    told = [wire.read().json for _ in range(32)]
    assert [answer["seqs"] for answer in told] == [[seq] for seq in range(2, 34)]
    assert {answer["count"] for answer in told} == {1}
    assert stored(app) == list(range(33))
    assert batches(app) == before + 1


def test_more_than_a_bundle_holds_is_answered_in_order(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    count = 3 * MOST_REQUESTS + 1
    wire.send(b"".join(append(n) for n in range(1, count)) + HEALTH)
    assert [wire.read().json["last_seq"] for _ in range(1, count)] == list(range(2, count + 1))
    assert wire.read().json["status"] == "ok"
    assert stored(app) == list(range(count))


@pytest.mark.parametrize("key", [None, KEY])
def test_it_may_be_cut_anywhere(app: RunningApp, key: str | None) -> None:
    """What comes later waits behind what was taken; nothing is taken twice."""
    wire = known_to(app, append(0, key))
    each = [append(n, key and f"{n:020}") for n in range(1, 5)]
    count, size = 0, len(b"".join(each))
    for cut in range(1, size, 7):
        sent = b"".join(append(n, key and f"{cut}-{n:015}") for n in range(1, 5))
        wire.send(sent[:cut])
        wire.send(sent[cut:])
        first = 4 * count + 2
        assert [wire.read().json["last_seq"] for _ in range(4)] == list(range(first, first + 4))
        count += 1
    assert stored(app) == [0, *[1, 2, 3, 4] * count]


def test_what_is_wrong_with_one_is_told_to_that_one(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    bad = append(2).replace(b"1002", b"10x2")
    wire.send(append(1) + bad + append(3) + HEALTH + append(4))
    assert [wire.read().status for _ in range(5)] == [200, 400, 200, 200, 200]
    assert stored(app) == [0, 1, 3, 4]


def test_what_came_meanwhile_stays_behind_a_bundle_that_is_taken_apart(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    bad = append(2).replace(b"1002", b"10x2")
    wire.send(append(1) + bad + append(3) + append(4, KEY) + append(5)[:-3])
    wire.send(append(5)[-3:] + HEALTH)
    assert [wire.read().status for _ in range(6)] == [200, 400, 200, 200, 200, 200]
    assert stored(app) == [0, 1, 3, 4, 5]


def test_a_key_that_comes_twice_is_one_write(app: RunningApp) -> None:
    wire = known_to(app, append(0, KEY))
    wire.send(append(1, "a" * 20) + append(2, "b" * 20) + append(1, "a" * 20) + append(0, KEY))
    told = [wire.read().json for _ in range(4)]
    assert [(answer["last_seq"], answer["deduped"]) for answer in told] == [
        (2, False),
        (3, False),
        (2, True),
        (1, True),
    ]
    assert stored(app) == [0, 1, 2]


def test_only_those_alike_go_together(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/other", {})
    wire = known_to(app, append(0), append(0, KEY), append(0, topic="other"))
    wire.send(append(1) + append(2, "a" * 20) + append(3) + append(9, topic="other") + append(4))
    assert [wire.read().json["last_seq"] for _ in range(5)] == [3, 4, 5, 2, 6]
    wire.send(append(2, "a" * 20))
    assert wire.read().json["deduped"]
    assert stored(app) == [0, 0, 1, 2, 3, 4]


def test_a_topic_that_is_gone_is_made_again_by_the_first(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    app.call("DELETE", "/v0/topics/t")
    wire.send(append(1) + append(2) + append(3))
    assert [wire.read().status for _ in range(3)] == [201, 200, 200]
    assert stored(app) == [1, 2, 3]


def test_records_with_tags_and_limits_go_together_too(app: RunningApp) -> None:
    app.call("PUT", "/v0/topics/t", {"cap_records": 3})
    body = b'{"records":[{"data":1001,"tag":"x"}]}'
    tagged = raw_request("POST", "/v0/topics/t", body)
    wire = known_to(app, tagged)
    before = batches(app)
    wire.send(8 * tagged)
    assert [wire.read().json["last_seq"] for _ in range(8)] == list(range(2, 10))
    assert batches(app) == before + 1
    told = app.call("POST", "/v0/topics/t/diff", {"from_seq": 0, "limit": 10}).json
    assert [record["$seq"] for record in told["records"]] == [7, 8, 9]
    assert told["tombstone"]["gap_to"] == 6


def test_who_writes_only_where_there_is_a_topic_need_not_be_looked_at_alone(app: RunningApp) -> None:
    body = b'{"records":[{"data":1001}],"create":false}'
    request = raw_request("POST", "/v0/topics/t", body)
    wire = known_to(app, request)
    before = batches(app)
    wire.send(8 * request)
    assert [wire.read().json["last_seq"] for _ in range(8)] == list(range(2, 10))
    assert batches(app) == before + 1
    app.call("DELETE", "/v0/topics/t")
    wire.send(2 * request + raw_request("POST", "/v0/topics/t", body.replace(b"false", b"fals")))
    assert [wire.read().status for _ in range(3)] == [404, 404, 400]


def test_a_client_that_ends_its_side_gets_all_answers(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    commit = app.app.node.commit
    app.wait(commit.pause())
    wire.send(append(1) + append(2) + append(3))
    wire.socket.shutdown(socket.SHUT_WR)
    (connection,) = app.app.server.context.connections
    eventually(lambda: connection._half_closed)
    app.inside(commit.resume)
    told = [wire.read() for _ in range(3)]
    assert [answer.json["last_seq"] for answer in told] == [2, 3, 4]
    assert [answer.headers.get("connection") for answer in told] == [None, None, "close"]
    assert wire.at_end()


def test_a_client_that_goes_is_nobodys_trouble(app: RunningApp) -> None:
    for _ in range(20):
        wire = known_to(app, append(0))
        wire.send(append(1) + append(2) + append(3))
        wire.close()
    eventually(lambda: not app.app.server.context.open_connections)
    # Each bundle as a whole, or not at all.
    values = stored(app)
    assert values.count(1) == values.count(2) == values.count(3)
    assert values.count(0) == 20


@pytest.mark.parametrize("most", [0, 3])
def test_each_has_its_place_among_those_of_its_caller(tmp_path: Path, most: int) -> None:
    app = RunningApp(tmp_path / "keyed", api_keys="secret", max_inflight_per_key=most)
    secret = {"Authorization": "Bearer secret"}
    wire = app.wire()
    for n in range(3):
        wire.send(append(n, **secret))
        assert wire.read().status == (200 if n else 201)
    wire.send(b"".join(append(n, **secret) for n in range(3, 11)) + append(0))
    assert [wire.read().status for _ in range(9)] == [200] * 8 + [401]
    gone = app.wire()
    gone.send(b"".join(append(n, **secret) for n in range(3)))
    gone.close()
    (key,) = {known.key for known in app.app.server.context.known_requests.heads.values()}
    eventually(lambda: key.inflight == 0)
    app.stop()


def test_a_slow_answer_is_noted_for_each(app: RunningApp) -> None:
    wire = known_to(app, append(0))
    log = app.app.server.context.request_log
    log._slow_s = log.notable_s = 1e-9
    wire.send(append(1) + append(2) + append(3) + HEALTH)
    assert [wire.read().status for _ in range(4)] == [200] * 4
    assert log.slow_requests == 4
    assert stored(app) == [0, 1, 2, 3]


def test_when_the_disk_refuses_it_each_is_told(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = known_to(app, append(0))
    journal = app.app.node.engine.journal

    def is_full(buffers: list[bytes]) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(type(journal), "write", lambda self, buffers: is_full(buffers))
    wire.send(append(1) + append(2) + append(3) + HEALTH)
    assert [wire.read().status for _ in range(4)] == [507, 507, 507, 200]
    monkeypatch.undo()
    assert stored(app) == [0]


def test_where_the_door_is_not_open_for_all_each_comes_to_it(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = known_to(app, append(0))
    monkeypatch.setattr(type(app.app.node.doors), "stand_open", False)
    monkeypatch.setattr(type(app.app.node.doors), "let_pass", lambda doors, name: False)
    wire.send(append(1) + append(2) + append(3))
    assert [wire.read().json["last_seq"] for _ in range(3)] == [2, 3, 4]


def test_one_request_is_no_bundle() -> None:
    assert bundle_in(KnownRequests(), append(1) + append(2), 0) is None
