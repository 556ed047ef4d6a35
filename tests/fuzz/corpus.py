"""Requests as they should be, one for every kind of route: what the fuzzer starts from."""

from __future__ import annotations

import json
from typing import Any

from tests.http.bulk import ARROW
from tests.support.arrow import arrow_stream

TOKEN = "fuzz-secret"
TOPICS = ("log", "jobs", "full", "copy", "missing")
NODES = ("n1", "n2")


def request(
    method: str,
    target: str,
    body: bytes | None = None,
    *headers: tuple[str, str],
    content_type: str = "application/json",
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: fuzz", f"Authorization: Bearer {TOKEN}"]
    if body is not None:
        lines += [f"Content-Length: {len(body)}", f"Content-Type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def _json(method: str, target: str, body: Any) -> bytes:
    return request(method, target, json.dumps(body).encode())


def _of_topic(topic: str) -> list[bytes]:
    one = f"/v0/topics/{topic}"
    record = {"data": {"n": 1, "text": "ü"}, "tag": "a:1", "node": "n1", "meta": {"k": "v"}}
    held = {"node": "n1", "seqs": [1, 2, 3]}
    rows = arrow_stream({"data": ["1", '{"a":2}'], "tag": ["a", "b"]})
    return [
        _json("PUT", one, {"cap_records": 20, "ttl_ms": 60000, "priority": 3}),
        _json("POST", one, {"records": [record, {"data": None}], "node": "n2"}),
        _json("POST", one + "?return_seqs=false", {"records": [{"data": 1}], "idempotency_key": "k"}),
        _json("POST", one + "/diff", {"from_seq": 0, "limit": 5, "node": ["n2"], "include_tags": True}),
        _json("POST", one + "/diff", {"from_seq": 10**6, "wait_ms": 1}),
        _json("POST", one + "/delete", {"match": ["tag", "Glob", "a*"], "before_seq": 4}),
        _json("POST", one + "/claim", {"node": "n1", "max": 3, "lease_ms": 100}),
        _json("POST", one + "/ack", held),
        _json("POST", one + "/nack", {**held, "delay_ms": 5}),
        _json("POST", one + "/extend", {**held, "lease_ms": 200}),
        _json("POST", one + "/scan", {"columns": ["seq", "data"], "max_records": 5}),
        _json("PUT", one + "/cursors/c", {"seq": 3, "epoch": 1}),
        request("POST", one + "/append", rows, content_type=ARROW),
        request("GET", one + "?touch=false"),
        request("GET", one + "/segments"),
        request("POST", one + "/segments/0123456789abcdef0123456789abcdef/renew"),
        request("DELETE", one + "/segments/0123456789abcdef0123456789abcdef"),
        request("GET", one + "/records?from_seq=-3&limit=2"),
        request("GET", one + "/records/1"),
        request("GET", one + "/leases?page_size=2"),
        _json("POST", one + "/redrive", {"max": 2}),
        request("GET", one + "/ledger"),
        request("GET", one + "/cursors"),
        request("GET", one + "/cursors/c"),
        request("DELETE", one + "/cursors/c"),
        request("GET", one + "/work?node=n1&max=2&lease_ms=100", None, ("Accept", "text/event-stream")),
    ]


def requests() -> list[bytes]:
    rows = arrow_stream({"data": ["1", "2"]})
    socket = (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    )
    return [
        *(one for topic in TOPICS for one in _of_topic(topic)),
        request("GET", "/v0/topics?prefix=l&page_size=2&cursor="),
        request("DELETE", "/v0/topics/full?if_empty=true"),
        _json("PUT", "/v0/routers/r", {"source": "log", "dest": "copy", "filter": "a*"}),
        request("GET", "/v0/routers?source=log"),
        request("GET", "/v0/routers/r"),
        request("DELETE", "/v0/routers/r"),
        _json("POST", "/v0/watch?lenient=true", {"topics": {"log": {"tail": True}, "none": {}}}),
        _json("POST", "/v0/watch", {"topics": {"log": {"from_seq": 3, "epoch": 7}}}),
        _json("PUT", "/v0/pipelines/p", {"state": "failed", "kind": "archive", "why": "no space"}),
        request("GET", "/v0/pipelines?prefix=p&page_size=2&cursor=YWZ0ZXI6cA"),
        request("DELETE", "/v0/pipelines/p"),
        request("GET", "/v0/cursors?consumer=c&prefix=l&page_size=2&cursor=YWZ0ZXI6bG9nL2M"),
        request("GET", "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA"),
        request("GET", "/v0/ws", None, *socket),
        request("PUT", "/v0/stages/s/parts/0?topic=log", rows, content_type=ARROW),
        _json("POST", "/v0/stages/s/commit", {"identity": {"id": "i", "batch": 1}, "parts": ["0"]}),
        request("DELETE", "/v0/stages/s"),
        request("GET", "/v0/tail?topic=log@0&tag=a*&last_event_id=x"),
        _json("POST", "/v0/tickets", {"path": "/v0/tail?topic=log"}),
        request("GET", "/v0/whoami"),
        request("GET", "/v0/admin/system"),
        request("GET", "/v0/info"),
        request("GET", "/v0/overview"),
        request("POST", "/v0/admin/backup"),
        request("POST", "/v0/admin/backup/0123456789abcdef0123456789abcdef/renew"),
        request("DELETE", "/v0/admin/backup/0123456789abcdef0123456789abcdef"),
        _json("POST", "/v0/admin/purge", {"topics": ["full"]}),
        request("GET", "/v0/admin/purge/purge_1"),
        request("GET", "/healthz"),
        request("GET", "/readyz"),
        request("GET", "/v0/health"),
        request("GET", "/v0/ready"),
        request("GET", "/v0/metrics"),
        request("GET", "/v0/openapi.json"),
    ]


def upgrade() -> bytes:
    return next(one for one in requests() if one.startswith(b"GET /v0/ws"))


def prepare() -> list[bytes]:
    """What has to exist before the rest makes sense."""
    return [
        _json("PUT", "/v0/topics/log", {"cap_records": 50}),
        _json("PUT", "/v0/topics/jobs", {"type": "queue", "cap_records": 50, "lease_ms": 100}),
        _json("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"}),
        _json("POST", "/v0/topics/full", {"records": [{"data": 1}]}),
    ]
