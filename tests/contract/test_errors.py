"""The shape of every refusal, and which of two faults is reported first."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle

JSON = {"Content-Type": "application/json"}
RECORD = b'{"records":[{"data":1}]}'


# Routing


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0"),
        ("GET", "/v0/nope"),
        ("GET", "/v1/topics"),
        ("GET", "/topics"),
        ("GET", "/v0/topics/a/b/c"),
        ("POST", "/v0/topics/a/nope"),
        ("GET", "/v0//topics"),
        ("GET", "/V0/topics"),
    ],
)
def test_an_unknown_path_is_not_found(server: Server, method: str, path: str) -> None:
    server.send(method, path).refused(404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v0/topics"),
        ("DELETE", "/v0/topics"),
        ("PATCH", "/v0/topics/a"),
        ("GET", "/v0/topics/a/diff"),
        ("PUT", "/v0/topics/a/diff"),
        ("GET", "/v0/topics/a/delete"),
        ("DELETE", "/v0/topics/a/delete"),
        ("POST", "/v0/health"),
        ("DELETE", "/readyz"),
    ],
)
def test_a_known_path_with_another_method_is_405(server: Server, method: str, path: str) -> None:
    server.send(method, path).refused(405, "method_not_allowed")


def test_routing_comes_before_the_body(server: Server) -> None:
    server.fresh_request("POST", "/v0/nope", b"<xml/>", {"Content-Type": "text/xml"}).refused(
        404, "not_found"
    )
    server.fresh_request("PATCH", "/v0/topics/a", b"{", JSON).refused(405, "method_not_allowed")


# Content types and empty bodies


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "text/json", ""]
)
@pytest.mark.parametrize(
    ("method", "suffix", "body"),
    [
        ("POST", "", RECORD),
        ("POST", "/diff", b"{}"),
        ("POST", "/delete", b'{"before_seq":1}'),
        ("PUT", "", b"{}"),
    ],
)
def test_a_body_must_be_declared_as_json(
    server: Server, new_topic: NewTopic, method: str, suffix: str, body: bytes, content_type: str | None
) -> None:
    topic = new_topic()
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = server.fresh_request(method, topic.path + suffix, body, headers)
    answer.refused(415, "unsupported_media_type")
    assert topic.state()["head_seq"] == 0


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "application/json;x=y", "Application/JSON"]
)
def test_content_type_parameters_are_allowed(server: Server, new_topic: NewTopic, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    server.fresh_request("POST", new_topic().path, RECORD, headers).ok()


def test_put_and_diff_accept_an_empty_body(server: Server, unborn: TopicHandle) -> None:
    created = server.fresh_request("PUT", unborn.path).ok(201)
    assert created["config"]["durability"] == "disk"
    page = server.fresh_request("POST", unborn.path + "/diff").ok()
    assert page["records"] == []
    server.fresh_request("PUT", unborn.path, b"", {"Content-Type": "text/plain"}).ok()
    server.fresh_request("POST", unborn.path + "/diff", b"", {"Content-Type": "text/plain"}).ok()


@pytest.mark.parametrize("suffix", ["", "/delete"])
def test_elsewhere_an_empty_body_fails(server: Server, new_topic: NewTopic, suffix: str) -> None:
    path = new_topic().path + suffix
    server.fresh_request("POST", path).refused(415, "unsupported_media_type")
    server.fresh_request("POST", path, b"", JSON).refused(400, "invalid_request")


# Malformed bodies

MALFORMED = [
    b"{",
    b"nonsense",
    b"{} {}",
    b'{"a":1,}',
    b"{'a':1}",
    b'{"a":NaN}',
    b'{"a":01}',
    b'{"a":"\xff"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"line\nbreak"}',
    b'{"a":"\\x41"}',
    b"\xef\xbb\xbf{",
    b'{"a":1}\x00',
    b"// note\n{}",
    b"[" * 100_000,
]
NOT_OBJECTS = [b"[]", b"null", b"true", b"12", b'"text"', b"[{}]"]


@pytest.mark.parametrize("body", MALFORMED + NOT_OBJECTS, ids=lambda body: repr(body[:20]))
@pytest.mark.parametrize(
    ("method", "suffix"), [("POST", ""), ("POST", "/diff"), ("POST", "/delete"), ("PUT", "")]
)
def test_malformed_json_and_non_objects_are_invalid(
    server: Server, new_topic: NewTopic, method: str, suffix: str, body: bytes
) -> None:
    server.send(method, new_topic().path + suffix, body).refused(400, "invalid_request")


@pytest.mark.parametrize(
    "data",
    [
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xf5\x80\x80\x80"',
        b'"a\nb"',
        b'"a\x00b"',
        b"NaN",
        b"Infinity",
        b"1.",
        b"-",
        b".5",
        b"+1",
        b"0x1",
        b"tru",
        b"[1,]",
        b'{"a"}',
        b'{"a":1,}',
        b"",
        b'"\\u12"',
        b'"\\q"',
    ],
    ids=repr,
)
@pytest.mark.parametrize("extra", [b"", b',"tag":"x"'])
def test_damage_inside_a_payload_is_seen_although_payloads_are_opaque(
    new_topic: NewTopic, data: bytes, extra: bytes
) -> None:
    topic = new_topic()
    topic.post(b'{"records":[{"data":1},{"data":%b%b}]}' % (data, extra)).refused(400, "invalid_request")
    assert topic.state()["head_seq"] == 0


def test_a_record_cannot_bring_its_own_seq_or_time(new_topic: NewTopic) -> None:
    topic = new_topic()
    forged = {"$seq": 99, "$ts": 1, "$node": "forged", "$tag": "forged"}
    for record in ({"data": 1}, {"data": 2, "tag": "t"}, {"data": 3, "node": "n"}):
        detail = topic.post({"records": [record | forged]}).refused(400, "invalid_request")
        assert sorted(detail["unknown"]) == sorted(forged)
    assert topic.state()["head_seq"] == 0


# Null and wrong types, field by field


def wrong_values(kind: str) -> list[Any]:
    return {
        "unsigned": ["1", -1, 1.5, True, [], {}],
        "bool": ["true", 1, 0, [], {}],
        "string": [1, True, [], {}],
        "object": [1, True, "x", []],
        "array": [1, True, "x", {}],
    }[kind]


DIFF_FIELDS = {
    "from_seq": "unsigned",
    "limit": "unsigned",
    "wait_ms": "unsigned",
    "max_batch_bytes": "unsigned",
    "include_tags": "bool",
    "include_meta": "bool",
    "epoch": "unsigned",
}


@pytest.mark.parametrize("field", DIFF_FIELDS)
def test_diff_fields_of_the_wrong_type(new_topic: NewTopic, field: str) -> None:
    topic = new_topic()
    for value in wrong_values(DIFF_FIELDS[field]):
        topic.ask_diff(**{field: value}).refused(400, "invalid_request")
    topic.ask_diff(**{field: None}).refused(400, "invalid_request")
    if DIFF_FIELDS[field] == "unsigned":
        # Whole, but written as fractions: not how integers are written.
        for text in (b"1.0", b"1e2", b"-0.0"):
            body = b'{"%b":%b}' % (field.encode(), text)
            topic.server.send("POST", topic.path + "/diff", body).refused(400, "invalid_request")


@pytest.mark.parametrize("node", [1, True, {}, [1], ["a", None], [["a"]]])
def test_diff_node_is_a_string_or_strings(new_topic: NewTopic, node: Any) -> None:
    new_topic().ask_diff(node=node).refused(400, "invalid_request")


def test_diff_node_may_be_null_or_empty(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "node": "a"})
    assert topic.seqs(node=None) == [1]
    assert topic.seqs(node=[]) == [1]


def test_numbers_beyond_64_bits_are_no_seqs(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.ask_diff(from_seq=2**64 - 1).ok()
    topic.ask_diff(from_seq=2**64).refused(400, "invalid_request")
    topic.ask_diff(from_seq=10**30).refused(400, "invalid_request")
    topic.ask_delete({"before_seq": 2**64 - 1}).ok()
    topic.ask_delete({"before_seq": 2**64}).refused(400, "invalid_request")


WRITE_FIELDS = {
    "records": "array",
    "node": "string",
    "idempotency_key": "string",
    "create": "bool",
    "config": "object",
    "disable_backpressure": "bool",
}
RECORD_FIELDS = {"tag": "string", "node": "string", "meta": "object"}


@pytest.mark.parametrize("field", WRITE_FIELDS)
def test_write_fields_of_the_wrong_type(new_topic: NewTopic, field: str) -> None:
    topic = new_topic()
    body: dict[str, Any] = {"records": [{"data": 1}]}
    for value in wrong_values(WRITE_FIELDS[field]):
        topic.post(body | {field: value}).refused(400, "invalid_request")
    if field in ("records", "disable_backpressure"):
        topic.post(body | {field: None}).refused(400, "invalid_request")
    else:
        topic.post(body | {field: None}).ok()


@pytest.mark.parametrize("field", RECORD_FIELDS)
def test_record_fields_of_the_wrong_type(new_topic: NewTopic, field: str) -> None:
    topic = new_topic()
    for value in wrong_values(RECORD_FIELDS[field]):
        topic.post({"records": [{"data": 1}, {"data": 1, field: value}]}).refused(400, "invalid_request")
    assert topic.state()["head_seq"] == 0
    topic.post({"records": [{"data": 1, field: None}]}).ok()
    (record,) = topic.diff(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}


@pytest.mark.parametrize("records", [[1], ["x"], [None], [[]], [{}], [{"tag": "x"}], [{"data": 1}, {}]])
def test_a_record_is_an_object_with_data(new_topic: NewTopic, records: Any) -> None:
    topic = new_topic()
    topic.post({"records": records}).refused(400, "invalid_request")
    topic.post({"records": records, "node": "n"}).refused(400, "invalid_request")
    assert topic.state()["head_seq"] == 0


def test_strings_that_are_not_unicode_text_are_refused_not_fatal(new_topic: NewTopic) -> None:
    topic = new_topic()
    for field in (b"tag", b"node"):
        body = b'{"records":[{"data":1,"%b":"\\ud800"}]}' % field
        topic.post(body).refused(400, "invalid_request")
    topic.ask_delete(b'{"match":"\\ud800"}').refused(400, "invalid_request")
    topic.server.send("POST", topic.path + "/diff", b'{"node":"\\udfff"}').refused(400, "invalid_request")


@pytest.mark.parametrize("value", ["1", -1, 1.5, True, [], {}])
def test_before_seq_of_the_wrong_type(new_topic: NewTopic, value: Any) -> None:
    new_topic().ask_delete({"before_seq": value}).refused(400, "invalid_request")


# Order of checks


def test_size_is_judged_before_type_and_type_before_content(boot: Boot) -> None:
    server = boot(TOPICS_MAX_BODY_BYTES="1000")
    text = {"Content-Type": "text/plain"}
    path = "/v0/topics/a"
    server.fresh_request("POST", path, b"{" * 1001, text).refused(413, "payload_too_large")
    server.fresh_request("POST", path, b"{" * 1000, text).refused(415, "unsupported_media_type")
    server.fresh_request("POST", path, b"{" * 1000, JSON).refused(400, "invalid_request")
    exact = b'{"records":[{"data":"%b"}]}' % (b"x" * (1000 - 25))
    assert len(exact) == 1000
    server.fresh_request("POST", path, exact, JSON).ok(201)
    server.fresh_request("POST", path, exact[:-3] + b' "}]}', JSON).refused(413, "payload_too_large")

    packed = gzip.compress(b'{"records":[{"data":"%b"}]}' % (b"x" * 5000))
    assert len(packed) < 1000
    answer = server.fresh_request("POST", path, packed, JSON | {"Content-Encoding": "gzip"})
    answer.refused(413, "payload_too_large")

    chunks = b"".join(b"190\r\n%b\r\n" % (b"x" * 400) for _ in range(4)) + b"0\r\n\r\n"
    head = b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.raw(head + chunks) as wire:
        wire.read().refused(413, "payload_too_large")


def test_an_announced_size_is_refused_without_waiting_for_it(server: Server) -> None:
    head = b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    with server.raw(head) as wire:
        wire.read().refused(413, "payload_too_large")
    with server.raw(head.replace(b"/v0/topics/a", b"/v0/nowhere")) as wire:
        wire.read().refused(404, "not_found")
    with server.raw(head.replace(b"POST", b"PATCH")) as wire:
        wire.read().refused(405, "method_not_allowed")


def test_the_body_is_judged_before_the_topic(unborn: TopicHandle) -> None:
    unborn.server.send("POST", unborn.path + "/diff", b"{").refused(400, "invalid_request")
    unborn.ask_diff(limit=-1).refused(400, "invalid_request")
    unborn.post(b"{").refused(400, "invalid_request")
    unborn.post({"records": [], "create": False}).refused(400, "invalid_request")
    unborn.ask_delete({}).refused(400, "invalid_request")
    unborn.ask_delete({"before_seq": None, "match": None}).refused(400, "invalid_request")
    unborn.ask_delete({"match": ["tag", "Glob", "x"]}).refused(400, "invalid_request")
    unborn.ask_delete({"before_seq": 1}).refused(404, "topic_not_found")


def test_a_missing_topic_is_named(unborn: TopicHandle) -> None:
    for answer in (
        unborn.ask_diff(),
        unborn.server.send("GET", unborn.path),
        unborn.ask_delete({"before_seq": 1}),
        unborn.post({"records": [{"data": 1}], "create": False}),
    ):
        assert answer.refused(404, "topic_not_found") == {"topic": unborn.name}


# Encodings and the bytes of HTTP


def test_gzip_bodies_are_decoded(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = JSON | {"Content-Encoding": "gzip"}
    body = json.dumps({"records": [{"data": "x" * 3_000_000}]}).encode()
    server.fresh_request("POST", topic.path, gzip.compress(RECORD), headers).ok()
    server.fresh_request("POST", topic.path, gzip.compress(body), headers).refused(400, "record_too_large")
    server.fresh_request("POST", topic.path + "/diff", gzip.compress(b'{"from_seq":1}'), headers).ok()
    server.fresh_request("PUT", topic.path, gzip.compress(b'{"ttl_ms":9000000}'), headers).ok()
    assert topic.state()["config"]["ttl_ms"] == 9_000_000
    assert topic.state()["head_seq"] == 1


def test_bad_gzip_is_invalid_and_other_encodings_are_unsupported(server: Server, new_topic: NewTopic) -> None:
    path = new_topic().path
    for body in (b"not gzip", gzip.compress(RECORD)[:-4], gzip.compress(RECORD)[:12]):
        answer = server.fresh_request("POST", path, body, JSON | {"Content-Encoding": "gzip"})
        answer.refused(400, "invalid_request")
    for encoding in ("br", "deflate", "zstd", "gzip, gzip"):
        answer = server.fresh_request("POST", path, RECORD, JSON | {"Content-Encoding": encoding})
        answer.refused(415, "unsupported_media_type")


def test_a_connection_survives_refusals(server: Server, new_topic: NewTopic) -> None:
    path = new_topic().path.encode()
    bad = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{"
        % path
    )
    lost = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    good = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
    with server.raw(bad + lost + good) as wire:
        assert [wire.read().status for _ in range(3)] == [400, 404, 200]


@pytest.mark.parametrize(
    "data",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /v0/topics HTTP/9.9\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: nope\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\nbroken header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=repr,
)
def test_bytes_that_are_not_http_end_the_connection_and_nothing_else(server: Server, data: bytes) -> None:
    with server.raw(data) as wire:
        wire.socket.shutdown(1)
        reply = b""
        while piece := wire.socket.recv(65536):
            reply += piece
        assert reply == b"" or reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert server.send("GET", "/v0/health").status == 200


def test_a_request_in_small_pieces_is_one_request(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    head = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    request = head % (topic.path.encode(), len(RECORD)) + RECORD
    with server.raw() as wire:
        for position in range(0, len(request), 7):
            wire.socket.sendall(request[position : position + 7])
        wire.read().ok()
    assert topic.state()["head_seq"] == 1


def test_a_body_cut_short_writes_nothing(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    head = (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    with server.raw(head % (topic.path.encode(), len(RECORD) + 5) + RECORD):
        pass
    assert topic.state()["head_seq"] == 0
