"""Bodies of megabytes: written whole, or refused for what they are, whichever route they came by."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contract.server import Server
from tests.contract.streams import Streams

MIB = 1024 * 1024
JUNK = {
    "numbers": b"[" + b",".join([b"1"] * MIB) + b"]",
    "names": b"{" + b",".join(b'"k%d":1' % n for n in range(200_000)) + b"}",
    "one name": b"{" + b",".join([b'"a":1'] * 400_000) + b"}",
    "nodes": b'{"node":[' + b",".join([b'"n"'] * 400_000) + b"]}",
    "seqs": b'{"node":"w","seqs":[' + b",".join([b"1"] * MIB) + b"]}",
    "cut short": b'{"a":[' + b"1," * MIB,
    "a text": b'{"node":"' + b"x" * 2 * MIB,
}
ROUTES = [
    ("POST", "/v0/topics/t"),
    ("PUT", "/v0/topics/t"),
    ("DELETE", "/v0/topics/t"),
    ("POST", "/v0/topics/t/diff"),
    ("POST", "/v0/topics/t/delete"),
    ("POST", "/v0/topics/q/claim"),
    ("POST", "/v0/topics/q/ack"),
    ("POST", "/v0/topics/q/nack"),
    ("POST", "/v0/topics/q/extend"),
    ("PUT", "/v0/routers/r"),
    ("POST", "/v0/watch"),
    ("POST", "/v0/stages/s/commit"),
    ("POST", "/v0/tickets"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(Path(tmp_path_factory.mktemp("large")) / "data").start()
    server.send("PUT", "/v0/topics/t", {}).ok(201)
    server.send("PUT", "/v0/topics/q", {"type": "queue"}).ok(201)
    yield server
    server.kill()


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_refused(server: Server, method: str, path: str, kind: str) -> None:
    answer = server.send(method, path, JUNK[kind])
    expected = "batch_too_large" if path.endswith(("/ack", "/nack", "/extend")) else "invalid_request"
    assert (answer.status, answer.json["error"]["code"]) == (400, expected)
    assert server.send("GET", "/v0/topics/t").status == 200


def test_white_space_is_no_reason_to_refuse(server: Server) -> None:
    much = b" \n\t\r" * MIB
    server.send("POST", "/v0/topics/t/diff", b"{%b}" % much).ok()
    server.send("PUT", "/v0/topics/spaced", much + b'{"ttl_ms"' + much + b": 5}").ok(201)
    assert server.send("GET", "/v0/topics/spaced").ok()["config"]["ttl_ms"] == 5
    server.send("DELETE", "/v0/topics/spaced", b"{" + much + b"}").ok()
    assert server.send("POST", "/v0/topics/t/diff", b'{"limit":1' + much + b"1}").status == 400


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_spaced", [False, True])
def test_a_large_write_is_a_write(server: Server, is_spaced: bool, is_packed: bool) -> None:
    name = f"written-{is_spaced}-{is_packed}"
    records = [
        {"data": {"n": n, "text": "x" * 900, "list": [{}, {"a": "},{"}]}, "tag": f"t{n}"} for n in range(3000)
    ]
    body = json.dumps({"records": records, "node": "me"}, indent=1 if is_spaced else None).encode()
    headers = {"Content-Encoding": "gzip"} if is_packed else {}
    sent = gzip.compress(body, 1) if is_packed else body
    written = server.send("POST", f"/v0/topics/{name}", sent, **headers).ok(201)
    assert (written["first_seq"], written["last_seq"], written["count"]) == (1, 3000, 3000)
    written = server.send("POST", f"/v0/topics/{name}", sent, **headers, **{"Idempotency-Key": "k"}).ok()
    assert written["first_seq"] == 3001
    again = server.send("POST", f"/v0/topics/{name}", sent, **headers, **{"Idempotency-Key": "k"}).ok()
    assert (again["deduped"], again["first_seq"]) == (True, 3001)
    asked = {"from_seq": 2999, "limit": 2, "include_tags": True}
    page = server.send("POST", f"/v0/topics/{name}/diff", asked).ok()
    kept = [(r["data"], r["$tag"], r["$node"]) for r in page["records"]]
    assert kept == [(r["data"], r["tag"], "me") for r in (records[-1], records[0])]


def test_all_of_a_large_write_or_nothing(server: Server) -> None:
    fine = {"data": "x" * 1000}
    body = {"records": [*[fine] * 3000, {"tag": "no data"}]}
    answer = server.send("POST", "/v0/topics/none", body)
    assert (answer.status, answer.json["error"]["message"]) == (400, "records[3000]: data is required")
    assert server.send("GET", "/v0/topics/none").status == 404
    body = {"records": [*[fine] * 3000, {"data": 1, "tga": "t"}]}
    answer = server.send("POST", "/v0/topics/none", body)
    assert answer.json["error"]["detail"] == {"unknown": ["tga"], "did_you_mean": {"tga": "tag"}}
    assert server.send("GET", "/v0/topics/none").status == 404


HUGE = {"data": "x" * (MIB + 100_000)}


@pytest.mark.parametrize(
    ("records", "more", "code", "message"),
    [
        ([HUGE], {}, "record_too_large", "records[0]: "),
        ([{"data": 1}, HUGE], {}, "record_too_large", "records[1]: "),
        ([HUGE, {"data": 1, "tag": "t" * 300}], {}, "record_too_large", "records[0]: "),
        ([{"data": 1, "tag": "t" * 300}, HUGE], {}, "invalid_request", "records[0].tag"),
        ([HUGE, *[{"data": 1}] * 10_000], {}, "batch_too_large", "at most"),
        ([HUGE], {"idempotency_key": "k" * 257}, "invalid_request", "idempotency_key"),
        ([HUGE], {"node": 5}, "invalid_request", "Expected"),
    ],
)
def test_a_large_write_is_refused_for_what_a_small_one_would_be(
    server: Server, records: list[object], more: dict[str, object], code: str, message: str
) -> None:
    body = {"records": records, **more, "crate": False}
    answer = server.send("POST", "/v0/topics/none", body)
    assert answer.refused(400, code) == {"unknown": ["crate"], "did_you_mean": {"crate": "create"}}
    assert answer.json["error"]["message"].startswith(message)
    assert server.send("GET", "/v0/topics/none").status == 404


def test_a_large_write_that_is_no_json_is_refused_for_that(server: Server) -> None:
    huge = json.dumps(HUGE).encode()
    for body in (b'{"records":[%b]', b'{"records":[%b],"node":}', b'{"records":[%b]}{}'):
        server.send("POST", "/v0/topics/none", body % huge).refused(400, "invalid_request")


def test_a_stage_may_have_very_many_parts(server: Server) -> None:
    parts = [f"{n:0100}" for n in range(20_000)]
    body = {"identity": {"id": "app", "batch": 1}, "parts": parts}
    answer = server.send("POST", "/v0/stages/s/commit", body)
    assert (answer.status, answer.json["error"]["message"]) == (404, "a part of this commit is not there")
    answer = server.send("POST", "/v0/stages/s/commit", {**body, "parts": [*parts, parts[0]]})
    assert answer.json["error"]["message"] == "parts names one part twice"
    answer = server.send("POST", "/v0/stages/s/commit", {**body, "parts": parts * 6})
    assert answer.json["error"]["message"] == "one commit names at most 100000 parts"
    answer = server.send("POST", "/v0/stages/s/commit", {**body, "prts": 1})
    assert answer.json["error"]["detail"]["did_you_mean"] == {"prts": "parts"}


# Over a socket


def test_large_publishes_keep_their_order(server: Server, streams: Streams) -> None:
    client = streams.socket(server)
    for number in range(3):
        large = [{"data": {"n": number, "text": "x" * 1000}, "tag": "large"}] * 2000
        client.send(op="publish", topic="sent", records=large, request_id=2 * number)
        client.send(op="publish", topic="sent", records=[{"data": number}], request_id=2 * number + 1)
    acks = sorted((client.next("ack") for _ in range(6)), key=lambda ack: ack["request_id"])
    assert [ack["first_seq"] for ack in acks] == [1, 2001, 2002, 4002, 4003, 6003]
    assert client.ask(op="ping", request_id="still there")["op"] == "pong"


def test_large_messages_are_refused_as_small_ones_are(server: Server, streams: Streams) -> None:
    client = streams.socket(server)
    records = [{"data": "x" * 1000}] * 2000
    client.send(op="publish", records=records, request_id=1)
    assert client.next("error")["code"] == "invalid_json"
    client.send(op="publish", topic="no name", records=records, request_id=2)
    message = client.next("error")
    assert (message["request_id"], message["code"]) == (2, "invalid_request")
    client.send(op="publish", topic="sent", records=[*records, {"data": 1, "tga": "x"}], request_id=3)
    assert client.next("error")["detail"]["did_you_mean"] == {"tga": "tag"}
    client.send(op="publish", topic="sent", records=[*records, {"tag": "x"}], request_id=4)
    assert client.next("error")["message"] == "records[2000]: data is required"
    for refused, code in (([HUGE], "record_too_large"), (records * 6, "batch_too_large")):
        client.send(op="publish", topic="sent", records=refused, request_id=code)
        message = client.next("error")
        assert (message["request_id"], message["code"]) == (code, code)
    client.send(op="subscribe", topic="t", records=records, request_id=5)
    assert client.next("error")["detail"]["unknown"] == ["records"]
    client.send(op="what", records=records, request_id=6)
    assert client.next("error")["code"] == "invalid_json"
    for junk in JUNK.values():
        client.send_text(junk.decode())
        assert client.next("error")["code"] == "invalid_json"
    client.send_text('{"op":"ping"' + " " * 2 * MIB + ',"request_id":7}')
    assert client.next("pong")["request_id"] == 7


# As columns


@pytest.mark.parametrize("is_tagged", [False, True])
def test_large_columns_are_written_as_small_ones_are(server: Server, is_tagged: bool) -> None:
    name, rows = f"columns-{is_tagged}", 2000
    columns = {"data": [f'"{n:01000}"' for n in range(rows)]} | ({"tag": ["t"] * rows} if is_tagged else {})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, (table := pa.table(columns)).schema) as out:
        out.write_table(table)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": "k"}
    path = f"/v0/topics/{name}/append"
    for deduped, status in ((False, 201), (True, 200)):
        batch = server.send("POST", path, sink.getvalue(), **headers).ok(status)["batches"][0]
        assert batch == {"first_seq": 1, "last_seq": rows, "count": rows, "deduped": deduped}
    asked = {"from_seq": rows - 1, "include_tags": True}
    (record,) = server.send("POST", f"/v0/topics/{name}/diff", asked).ok()["records"]
    assert (record["data"], record.get("$tag")) == (f"{rows - 1:01000}", "t" if is_tagged else None)
