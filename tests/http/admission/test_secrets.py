"""Whatever the server emits, a key's secret is not in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import ServerProcess, Wire, raw_request

SECRETS = ("Zq-owner-31415", "Zq-reader-27182", "Zq-guess-16180")
OWNER, READER, GUESS = SECRETS
BEARER = {"Authorization": f"Bearer {OWNER}"}
# Any part of one this long would be too much.
PIECE = 8


def pieces() -> set[bytes]:
    """Long enough to be no accident; what all secrets share says nothing."""
    found = {secret[at : at + PIECE] for secret in SECRETS for at in range(len(secret) - PIECE + 1)}
    return {piece.encode() for piece in found}


def requests() -> list[bytes]:
    """Right ones, wrong ones, and ones in which a secret stands where it does not belong."""
    wrong = {"Authorization": f"Bearer {GUESS}"}
    reader = {"Authorization": f"Bearer {READER}"}
    body = b'{"records":[{"data":1}]}'
    return [
        raw_request("POST", "/v0/topics/in.log", body, BEARER),
        raw_request("POST", "/v0/topics/in.log", body, wrong),
        raw_request("POST", "/v0/topics/in.log", body, reader),
        raw_request("GET", "/v0/topics/out.log", None, reader),
        raw_request("GET", f"/v0/topics?token={OWNER}"),
        raw_request("GET", f"/v0/topics/in.log/work?node=n&token={GUESS}"),
        raw_request("GET", f"/v0/topics/in.log/work?node=n&token={OWNER}"),
        raw_request("GET", f"/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA?token={OWNER}"),
        raw_request("GET", "/v0/metrics", None, BEARER),
        raw_request("GET", "/v0/metrics", None, BEARER | {"Accept": "application/json"}),
        raw_request("GET", "/v0/openapi.json", None, BEARER),
        raw_request("POST", "/v0/topics/in.log", b"{", BEARER),
        raw_request("PUT", "/v0/topics/in.log", b'{"type":7}', BEARER),
        raw_request("PATCH", "/v0/topics/in.log", None, BEARER),
        raw_request("POST", "/v0/topics/in.log/claim", b'{"node":"n"}', BEARER),
        raw_request("GET", "/v0/ws", None, BEARER),
        raw_request("GET", "/v0/nowhere", None, {"Authorization": f"Basic {GUESS}"}),
        raw_request("GET", "/v0/nowhere", None, {"Authorization": OWNER}),
        raw_request("GET", "/v0/topics", None, BEARER | {"Content-Length": "x"}),
        f"GET /v0/topics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER}\x00\r\n\r\n".encode(),
        f"Authorization: Bearer {OWNER}\r\n\r\n".encode(),
    ]


def answer(address: tuple[str, int], request: bytes) -> bytes:
    wire = Wire(address)
    try:
        wire.send(request)
        wire.socket.settimeout(2)
        wire.socket.shutdown(1)
        return wire.file.read()
    finally:
        wire.close()


def leaks(data: bytes) -> list[bytes]:
    return [piece for piece in pieces() if piece in data]


@pytest.mark.parametrize("log_format", ["human", "json"])
def test_no_secret_leaves_the_server(tmp_path: Path, log_format: str) -> None:
    server = ServerProcess(
        tmp_path,
        TOPICS_API_KEYS=f"{OWNER},{READER}:read:in.",
        TOPICS_LOG_LEVEL="debug",
        TOPICS_LOG_FORMAT=log_format,
        TOPICS_ACCESS_LOG="1",
        # Every request is a slow one, which is logged too.
        TOPICS_SLOW_REQUEST_MS="1",
    ).start()
    try:
        answers = [answer(server.host_and_port, request) for request in requests()]
        statuses = {int(status) for data in answers for status in re.findall(rb"HTTP/1.1 (\d{3})", data)}
        assert {200, 201, 400, 401, 403, 404, 405, 409} <= statuses
    finally:
        server.stop()
    for data in answers:
        assert leaks(data) == []
    log = (tmp_path / "server.log").read_bytes()
    assert b"/v0/topics" in log
    assert leaks(log) == []
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            assert leaks(path.read_bytes()) == [], path


@pytest.mark.parametrize("keys", [f"{OWNER}:{READER}", f"a,{OWNER}:+", f":{OWNER}", f"{OWNER}:reed:x"])
def test_no_secret_is_shown_when_the_start_is_refused(tmp_path: Path, keys: str) -> None:
    with pytest.raises(AssertionError):
        ServerProcess(tmp_path, TOPICS_API_KEYS=keys).start()
    log = (tmp_path / "server.log").read_bytes()
    assert b"TOPICS_API_KEYS" in log
    assert leaks(log) == []
    assert b"Traceback" not in log


def test_a_defect_shows_no_secret(start, caplog: pytest.LogCaptureFixture) -> None:
    app = start(api_keys=OWNER)

    def break_down(*_: object) -> None:
        raise RuntimeError("a defect")

    app.app.node.engine.names_after = break_down
    found = app.call("GET", f"/v0/topics?token={OWNER}", **BEARER)
    assert (found.status, found.code) == (500, "internal")
    assert "a defect" in caplog.text
    assert leaks(caplog.text.encode() + found.body) == []
