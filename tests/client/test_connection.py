"""The connection: kept open, opened again, patient with a server that is away, clear when it gives up."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from topics.client import Client, Refused, Unreachable
from topics.client.connection import Connection

Answer = tuple[int, bytes]


class Scripted:
    """A server that gives prepared answers in turn, the last one for ever, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[Any] = set()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                script.connections.add(self.client_address)
                script.asked.append((self.command, self.path, dict(self.headers), body))
                status, answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                if status == 0:  # hang up instead of answering
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = do  # noqa: N815 - the library looks for these

            def log_message(self, *_: object) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.fixture
def connect(scripted: Scripted) -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def open_one(**extra: Any) -> Connection:
        opened.append(Connection(scripted.url, **{"patience_s": 2.0, **extra}))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def error(code: str, message: str = "no") -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "detail": {"topic": "a"}}}).encode()


def test_requests_share_a_connection_and_carry_the_key(
    scripted: Scripted, connect: Callable[..., Connection]
) -> None:
    scripted.answers = [(200, b"{}")]
    one = connect(api_key="s3cret")
    for _ in range(3):
        assert one.fetch("GET", "/v0/topics") == b"{}"
    assert len(scripted.connections) == 1
    assert scripted.asked[0][2]["Authorization"] == "Bearer s3cret"


def test_an_idle_connection_that_the_server_closed_is_opened_again(
    scripted: Scripted, connect: Callable[..., Connection]
) -> None:
    scripted.answers = [(200, b"1"), (0, b""), (200, b"2")]
    one = connect(patience_s=0.0)
    assert one.fetch("GET", "/") == b"1"
    assert one.fetch("GET", "/") == b"2"


def test_a_busy_server_is_asked_again(scripted: Scripted, connect: Callable[..., Connection]) -> None:
    refusals = [(503, error("not_ready")), (429, error("throttled")), (507, error("disk_full"))]
    scripted.answers = [*refusals, (200, b"ok")]
    assert connect().fetch("POST", "/", b"body") == b"ok"
    assert [body for *_, body in scripted.asked] == [b"body"] * 4


def test_a_server_that_stays_busy_is_reported(scripted: Scripted, connect: Callable[..., Connection]) -> None:
    scripted.answers = [(503, error("shutting_down", "draining"))]
    with pytest.raises(Refused, match=r"draining \(503 shutting_down\)") as caught:
        connect(patience_s=0.1).fetch("GET", "/")
    assert caught.value.code == "shutting_down"


def test_a_refusal_is_not_repeated(scripted: Scripted, connect: Callable[..., Connection]) -> None:
    scripted.answers = [(401, error("unauthorized", "a key is needed"))]
    with pytest.raises(Refused, match=r"a key is needed.*give a valid key") as caught:
        connect().fetch("GET", "/")
    assert len(scripted.asked) == 1
    assert (caught.value.status, caught.value.detail) == (401, {"topic": "a"})


def test_the_connection_is_usable_after_a_refusal(
    scripted: Scripted, connect: Callable[..., Connection]
) -> None:
    scripted.answers = [(404, error("topic_not_found")), (200, b"ok")]
    one = connect()
    with pytest.raises(Refused):
        one.fetch("GET", "/")
    assert one.fetch("GET", "/") == b"ok"


def test_something_that_is_no_topics_server_is_quoted(
    scripted: Scripted, connect: Callable[..., Connection]
) -> None:
    scripted.answers = [(502, b"<html>Bad gateway</html>")]
    with pytest.raises(Refused, match="Bad gateway"):
        connect().fetch("GET", "/")


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"no answer from the topics server at {url}"):
            Connection(url, patience_s=0.1).fetch("GET", "/")


@pytest.mark.parametrize(
    "url", ["localhost:4000", "ftp://x", "http://", "", "http://host:99999", "http://host:x", "http://[::1"]
)
def test_an_address_has_to_look_like_one(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:4000"):
        Connection(url)


def test_a_key_is_sent_as_the_server_reads_it(scripted: Scripted, connect: Callable[..., Connection]) -> None:
    scripted.answers = [(200, b"ok")]
    connect(api_key=" schlüssel\r\n").fetch("GET", "/")
    sent = scripted.asked[0][2]["Authorization"]
    assert sent.encode("latin-1") == "Bearer schlüssel".encode()


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(ValueError, match="API key") as caught:
        Connection("http://127.0.0.1:4000", "ses\name")
    assert "ses" not in str(caught.value)


def test_it_travels_to_executors_without_its_socket(
    scripted: Scripted, connect: Callable[..., Connection]
) -> None:
    scripted.answers = [(200, b"ok")]
    one = connect(api_key="k")
    one.fetch("GET", "/")
    copy = pickle.loads(pickle.dumps(one))
    assert copy.fetch("GET", "/") == b"ok"
    copy.close()
    assert scripted.asked[-1][2]["Authorization"] == "Bearer k"


def test_names_are_listed_page_by_page_and_quoted_in_paths(scripted: Scripted) -> None:
    pages = [{"topics": [{"topic": "a"}, {"topic": "b"}], "next_cursor": "x y"}, {"topics": [{"topic": "c"}]}]
    scripted.answers = [(200, json.dumps(page).encode()) for page in pages] + [(200, b"{}")]
    with Client(scripted.url) as client:
        assert list(client.topic_names()) == ["a", "b", "c"]
        client.topic("odd/name?")
    paths = [path for _, path, *_ in scripted.asked]
    assert "cursor=x+y" in paths[1]
    assert paths[2] == "/v0/topics/odd%2Fname%3F?touch=false"
