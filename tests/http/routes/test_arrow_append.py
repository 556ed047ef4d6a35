"""Bulk writes over the wire."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.http.bulk import ARROW, append, send, threads_that_open
from tests.http.streaming import RunningApp
from tests.support import ServerProcess, raw_request
from tests.support.arrow import arrow_stream
from topics.http.routes.arrow_append import INLINE_BYTES


def rows(server: ServerProcess, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.post(
        f"/v0/topics/{topic}/diff", {"include_tags": True, "limit": 1000}
    )["records"]
    return found


def test_every_batch_is_answered_for(server: ServerProcess) -> None:
    answer = append(server, "b.all", {"data": ["1", '{"a": 2}']}, {"data": ["null"]})
    body = answer.json
    assert answer.status == 201
    assert body.pop("performance").keys() == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert body == {
        "topic": "b.all",
        "epoch": server.get("/v0/topics/b.all")["epoch"],
        "batches": [
            {"first_seq": 1, "last_seq": 2, "count": 2, "deduped": False},
            {"first_seq": 3, "last_seq": 3, "count": 1, "deduped": False},
        ],
        "head_seq": 3,
        "count": 3,
        "created": True,
    }
    assert [row["data"] for row in rows(server, "b.all")] == [1, {"a": 2}, None]
    answer = append(server, "b.all", {"data": ["4"]})
    assert (answer.status, answer.json["created"], answer.json["head_seq"]) == (200, False, 4)


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_column_that_is_none_is_told_and_large_bodies_are_not_opened_on_the_loop(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    threads = threads_that_open(monkeypatch)
    body = arrow_stream({"data": [f'"{n:050d}"' for n in range(count)], "tags": ["x"] * count})
    wire = app.wire()
    wire.send(raw_request("POST", "/v0/topics/t/append", body, {"Content-Type": ARROW}))
    refused = wire.read()
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "tags" in refused.json["error"]["message"]
    assert [thread is app.thread for thread in threads] == [len(body) <= INLINE_BYTES]


def test_tags_nodes_and_metas_come_back(server: ServerProcess) -> None:
    append(
        server,
        "b.side",
        {"data": ["1", "2"], "tag": ["x", None], "node": [None, "n"], "meta": ['{"m": 1}', None]},
    )
    first, second = rows(server, "b.side")
    assert {k: first[k] for k in first if k != "$ts"} == {"$seq": 1, "$tag": "x", "data": 1, "meta": {"m": 1}}
    assert {k: second[k] for k in second if k != "$ts"} == {"$seq": 2, "$node": "n", "data": 2}
    assert server.post("/v0/topics/b.side/delete", {"match": "x"})["deleted"] == 1
    assert server.get("/v0/topics/b.side")["bytes"] == 1


def test_a_retry_repeats_batches_by_key_and_index(server: ServerProcess) -> None:
    first = append(server, "b.key", {"data": ["1"]}, {"data": ["2", "3"]}, query="?idempotency_key=k").json
    again = append(
        server, "b.key", {"data": ["1"]}, {"data": ["2", "3"]}, {"data": ["4"]}, query="?idempotency_key=k"
    ).json
    assert [b["deduped"] for b in again["batches"]] == [True, True, False]
    assert [b["first_seq"] for b in again["batches"]] == [1, 2, 4]
    assert [b["first_seq"] for b in first["batches"]] == [1, 2]
    assert len(rows(server, "b.key")) == 4
    body = arrow_stream({"data": ["1"]})
    headers = {"Idempotency-Key": "k"}
    assert send(server, "POST", "/v0/topics/b.key/append", body, **headers).json["batches"][0]["deduped"]


def test_a_bad_batch_refuses_the_whole_stream_before_anything_is_written(server: ServerProcess) -> None:
    answer = append(server, "b.bad", {"data": ["1"]}, {"data": ["1", "{"]})
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    assert "record batch 1" in answer.json["error"]["message"]
    assert server.request("GET", "/v0/topics/b.bad").status == 404


def test_a_full_topic_keeps_the_batches_before_the_refused_one(server: ServerProcess) -> None:
    server.put("/v0/topics/b.full", {"cap_records": 3, "discard": "reject"})
    answer = append(server, "b.full", {"data": ["1", "2"]}, {"data": ["3", "4"]}, {"data": ["5"]})
    assert (answer.status, answer.json["error"]["code"]) == (422, "topic_full")
    detail = answer.json["error"]["detail"]
    assert detail["topic"] == "b.full"
    assert detail["batches"] == [{"first_seq": 1, "last_seq": 2, "count": 2, "deduped": False}]
    assert [row["data"] for row in rows(server, "b.full")] == [1, 2]


def test_empty_batches_keep_their_place_and_an_empty_stream_is_refused(server: ServerProcess) -> None:
    answer = append(server, "b.empty", {"data": []})
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")
    batches = append(server, "b.empty", {"data": []}, {"data": ["1"]}).json["batches"]
    assert batches == [
        {"first_seq": None, "last_seq": None, "count": 0, "deduped": False},
        {"first_seq": 1, "last_seq": 1, "count": 1, "deduped": False},
    ]


def test_create_decides_about_an_absent_topic(server: ServerProcess) -> None:
    answer = append(server, "b.absent", {"data": ["1"]}, query="?create=false")
    assert answer.json["error"]["code"] == "topic_not_found"
    assert append(server, "b.absent", {"data": ["1"]}, query="?create=true").status == 201
    assert append(server, "b.absent", {"data": ["1"]}, query="?create=false").status == 200
    assert append(server, "b%20ad", {"data": ["1"]}).json["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
def test_the_body_must_be_declared_as_arrow(server: ServerProcess, content_type: str) -> None:
    answer = send(server, "POST", "/v0/topics/b.type/append", arrow_stream({"data": ["1"]}), content_type)
    assert (answer.status, answer.json["error"]["code"]) == (415, "unsupported_media_type")
    assert "application/vnd.apache.arrow.stream" in answer.json["error"]["message"]


def test_a_compressed_body_is_taken(server: ServerProcess) -> None:
    body = gzip.compress(arrow_stream({"data": ["1", "2"]}))
    answer = send(server, "POST", "/v0/topics/b.gzip/append", body, **{"Content-Encoding": "gzip"})
    assert answer.json["count"] == 2


def test_a_batch_larger_than_a_json_write_is_taken_whole(server: ServerProcess) -> None:
    answer = append(server, "b.large", {"data": [str(i) for i in range(20_000)]})
    assert answer.json["batches"] == [{"first_seq": 1, "last_seq": 20_000, "count": 20_000, "deduped": False}]
    state = server.get("/v0/topics/b.large")
    assert (state["count"], state["bytes"]) == (20_000, sum(len(str(i)) for i in range(20_000)))
