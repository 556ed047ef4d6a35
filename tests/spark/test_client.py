"""The client of the connector: what it adds to the SDK's transport. The transport has tests of its own."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_topics.client import Client
from pyspark_topics.errors import BatchTooLarge
from pyspark_topics.options import parse_write
from pyspark_topics.writer import BatchWriter, SinkWriter, StreamWriter

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


def error(code: str, message: str = "no") -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "detail": {"topic": "a"}}}).encode()


def test_a_server_that_is_busy_or_has_no_room_is_asked_again(scripted: Scripted) -> None:
    refusals = [(503, error("not_ready")), (429, error("throttled")), (507, error("disk_full"))]
    scripted.answers = [*refusals, (200, b"{}")]
    with Client(scripted.url, patience_s=5.0) as client:
        client.commit_stage("s", "id", 1, ["p"])
    assert len({body for *_, body in scripted.asked}) == 1
    assert len(scripted.asked) == 4
    assert len(scripted.connections) == 1


def test_a_scan_is_patient_too(scripted: Scripted) -> None:
    scripted.answers = [(503, error("not_ready")), (200, b"0123456789")]
    with Client(scripted.url, patience_s=5.0) as client, client.scan("a", {}) as body:
        assert (body.read(4), body.read(4), body.read(4), body.read(4)) == (b"0123", b"4567", b"89", b"")


def test_it_travels_to_executors_as_its_address(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key of the options, or with none: an executor's environment is not the user's."""
    monkeypatch.setenv("TOPICS_API_KEY", "of-the-executor")
    scripted.answers = [(200, b"{}")]
    for key, sent in (("k", "Bearer k"), (None, None)):
        with Client(scripted.url, key) as client:
            client.topic("a")
            with pickle.loads(pickle.dumps(client)) as copy:
                copy.topic("a")
        assert [headers.get("Authorization") for *_, headers, _ in scripted.asked[-2:]] == [sent, sent]


def test_names_are_listed_page_by_page_and_quoted_in_paths(scripted: Scripted) -> None:
    pages = [{"topics": [{"topic": "a"}, {"topic": "b"}], "next_cursor": "x y"}, {"topics": [{"topic": "c"}]}]
    scripted.answers = [(200, json.dumps(page).encode()) for page in pages] + [(200, b"{}")]
    with Client(scripted.url) as client:
        assert list(client.topic_names()) == ["a", "b", "c"]
        client.topic("odd/name?")
    paths = [path for _, path, *_ in scripted.asked]
    assert "cursor=x+y" in paths[1]
    assert paths[2] == "/v0/topics/odd%2Fname%3F?touch=false"


@pytest.mark.parametrize(("writer", "advice"), [(BatchWriter, "several jobs"), (StreamWriter, "maxOffsets")])
def test_a_batch_that_is_too_large_says_which_option_helps(
    scripted: Scripted, writer: type[SinkWriter], advice: str
) -> None:
    scripted.answers = [(413, error("payload_too_large", "one commit takes at most 1 bytes"))]
    schema = StructType([StructField("data", StringType())])
    one = writer(parse_write({"url": scripted.url, "topic": "t"}), schema, False)
    with pytest.raises(BatchTooLarge, match=f"one commit takes at most 1 bytes.*{advice}"):
        one.commit_stage("stage", "id", 0, [])
