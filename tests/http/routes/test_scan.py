"""Bulk reads over the wire."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from tests.http.bulk import append, scan
from tests.support import ServerProcess


def test_a_scan_carries_rows_lines_and_outcome(server: ServerProcess) -> None:
    server.post(
        "/v0/topics/s.all",
        {"records": [{"data": {"k": 1}, "tag": "x", "node": "n"}, {"data": None, "meta": {"m": 1}}]},
    )
    found = scan(server, "s.all")
    state = server.get("/v0/topics/s.all")
    assert found.answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert found.names == ["seq", "ts", "node", "tag", "data", "meta"]
    assert [(r["seq"], r["node"], r["tag"], r["data"], r["meta"]) for r in found.rows] == [
        (1, "n", "x", '{"k":1}', None),
        (2, None, None, "null", '{"m":1}'),
    ]
    assert found.about.pop("now") > 0
    assert found.about == {
        "topic": "s.all",
        "epoch": state["epoch"],
        "head_seq": 2,
        "earliest_seq": 1,
        "loss_line": 1,
        "seq_base": 1,
    }
    assert found.outcome == {"next_from_seq": 2, "caught_up": True, "complete": True, "scanned": 2}
    assert found.gaps == []


def test_gaps_precede_the_batch_behind_them(server: ServerProcess) -> None:
    server.put("/v0/topics/s.gap", {"cap_records": 2})
    server.post("/v0/topics/s.gap", {"records": [{"data": i} for i in range(5)]})
    found = scan(server, "s.gap")
    assert found.gaps == [
        {"gap_from": 1, "gap_to": 3, "reason": "cap", "missed_estimate": 3, "earliest_seq": 4, "head_seq": 5}
    ]
    assert [row["seq"] for row in found.rows] == [4, 5]
    assert found.about["loss_line"] == found.about["earliest_seq"] == 4


def test_columns_come_in_the_fixed_order(server: ServerProcess) -> None:
    server.post("/v0/topics/s.columns", {"records": [{"data": 1, "tag": "x"}]})
    assert scan(server, "s.columns", columns=["data", "seq"]).names == ["seq", "data"]


def test_filters_and_bounds_are_passed_on(server: ServerProcess) -> None:
    server.post(
        "/v0/topics/s.filter",
        {"records": [{"data": i, "tag": f"t{i % 3}", "node": f"n{i % 2}"} for i in range(12)]},
    )

    def seqs(**request: object) -> list[int]:
        return [row["seq"] for row in scan(server, "s.filter", **request).rows]

    assert seqs(from_seq=3, to_seq=6) == [4, 5, 6]
    assert seqs(node="n1") == [1, 3, 5, 7, 9, 11]
    assert seqs(node=["n0", "n1"]) == []
    assert seqs(tag="t1") == [2, 5, 8, 11]
    assert seqs(tag=["tag", "Glob", "t*"]) == list(range(1, 13))
    assert seqs(max_records=2) == [1, 2]
    assert seqs(since_ts=1) == list(range(1, 13))
    assert seqs(until_ts=1) == []
    assert seqs(from_seq=5, epoch=10**6) == list(range(1, 13))


@pytest.mark.parametrize(
    "request_body",
    [
        {"from_seq": -1},
        {"from_seq": None},
        {"to_seq": "7"},
        {"columns": []},
        {"columns": ["seq", "size"]},
        {"tag": ["tag", "Like", "x"]},
        {"node": 1},
        {"max_records": -1},
        {"since_ts": 1.5},
        {"epoch": -1},
        *({name: None} for name in ("to_seq", "since_ts", "until_ts", "max_records", "epoch")),
        [],
    ],
)
def test_bad_requests_are_refused(server: ServerProcess, request_body: object) -> None:
    answer = server.request("POST", "/v0/topics/s.bad/scan", request_body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_request")


def test_a_scan_touches_the_topic_like_a_diff(server: ServerProcess) -> None:
    server.post("/v0/topics/s.touch", {"records": [{"data": 1}]})
    assert server.get("/v0/topics/s.touch?touch=false")["last_read_ts"] is None
    scan(server, "s.touch")
    assert server.get("/v0/topics/s.touch?touch=false")["last_read_ts"] is not None


@pytest.fixture(scope="module")
def large(server: ServerProcess) -> str:
    """A topic whose scan does not fit into one answer."""
    cells = [json.dumps({"i": i, "pad": "x" * 100}, separators=(",", ":")) for i in range(50_000)]
    for _ in range(3):
        assert append(server, "s.large", {"data": cells}).status in (200, 201)
    return "s.large"


def test_a_long_scan_is_streamed_in_pieces(server: ServerProcess, large: str) -> None:
    found = scan(server, large)
    assert found.answer.headers["transfer-encoding"] == "chunked"
    assert len(found.batch_rows) > 3
    assert [row["seq"] for row in found.rows] == list(range(1, 150_001))
    assert found.rows[60_000]["data"] == '{"i":10000,"pad":"' + "x" * 100 + '"}'
    assert found.outcome["next_from_seq"] == 150_000


def test_a_short_scan_leaves_the_connection_open(server: ServerProcess) -> None:
    server.post("/v0/topics/s.short", {"records": [{"data": 1}]})
    connection = http.client.HTTPConnection(*server.host_and_port, timeout=20)
    for _ in range(2):
        connection.request("POST", "/v0/topics/s.short/scan", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.read()
        assert answer.headers["content-length"]
    connection.close()


def test_others_are_served_while_a_client_does_not_read_its_scan(server: ServerProcess, large: str) -> None:
    with socket.create_connection(server.host_and_port, timeout=20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"POST /v0/topics/{large}/scan HTTP/1.1\r\nHost: x\r\n\r\n"
        slow.sendall(request.encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        assert server.request("GET", "/v0/health").status == 200
        assert len(scan(server, large, to_seq=10).rows) == 10


def test_a_scan_of_a_topic_deleted_meanwhile_breaks_off(server: ServerProcess) -> None:
    cells = ["x".join(('"', "y" * 400, '"'))] * 50_000
    assert append(server, "s.broken", {"data": cells}).status == 201
    with socket.create_connection(server.host_and_port, timeout=20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        slow.sendall(b"POST /v0/topics/s.broken/scan HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(12).startswith(b"HTTP/1.1 200")
        assert server.request("DELETE", "/v0/topics/s.broken").json["deleted"]
        received = b""
        try:
            while part := slow.recv(1 << 20):
                received = (received + part)[-64:]
        except ConnectionError:
            pass
        # The end of a chunked body was never sent.
        assert not received.endswith(b"0\r\n\r\n")
