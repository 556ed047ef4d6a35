"""A slice of what `python -m tests.fuzz` and `python -m tests.fuzz.churn` do at length."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import Campaign
from tests.fuzz.churn import measure
from tests.fuzz.conversations import Conversations
from tests.fuzz.malformed import Malformed
from tests.fuzz.pulse import Pulse
from tests.fuzz.schema import SchemaFuzz, prepare
from tests.fuzz.servers import FuzzedServer, SanitisedServer
from tests.http.streaming import RunningApp
from tests.support import Answer, Wire, eventually, sanitised


@pytest.fixture
def app(tmp_path: Path) -> Iterator[RunningApp]:
    app = RunningApp(tmp_path)
    prepare(app.call)
    yield app
    app.stop()


def schema_fuzz(app: RunningApp, document: object) -> SchemaFuzz:
    assert isinstance(document, dict)
    host, port = app.address
    return SchemaFuzz(document, f"http://{host}:{port}")


def test_answers_are_what_the_document_says(app: RunningApp) -> None:
    fuzz = schema_fuzz(app, app.call("GET", "/v0/openapi.json").json)
    fuzz.run(360, seed=1)
    assert fuzz.statuses.total() > 250
    assert {200, 201, 400, 404} <= set(fuzz.statuses)


@pytest.mark.parametrize("lie", ["status", "key"])
def test_a_document_that_lies_is_found_out(app: RunningApp, lie: str) -> None:
    document = app.call("GET", "/v0/openapi.json").json
    diff = document["paths"]["/v0/topics/{topic}/diff"]["post"]
    document["paths"] = {"/v0/topics/{topic}/diff": {"post": diff}}
    if lie == "status":
        del diff["responses"]["404"]
    else:
        document["components"]["schemas"]["Diff"]["required"].append("no_such_key")
    with pytest.raises(BaseException, match=r"status code|required property"):
        schema_fuzz(app, document).run(200, seed=1)


def test_malformed_requests_do_no_harm(tmp_path: Path) -> None:
    report = Campaign(FuzzedServer(tmp_path), seed=1).run(2500, rounds=1, is_whole=False)
    assert report["failures"] == []
    assert {101, 200, 400, 401, 404, 409, 413, 415} <= set(report["answers_raw"])


@pytest.mark.skipif(sanitised.library() is None, reason="no C compiler with AddressSanitizer")
def test_no_request_makes_the_codec_access_foreign_memory(tmp_path: Path) -> None:
    report = Campaign(SanitisedServer(tmp_path), seed=1).run(600, rounds=1, is_whole=False)
    assert report["failures"] == []
    assert report["answers_raw"][200] > 20


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    class Leaves(FuzzedServer):
        def request(self, *request: Any) -> Answer:
            # The first that the campaign asks for behind what the start asks.
            if request[1] == "/v0/openapi.json":
                with self.log_file.open("a") as log:
                    log.write("x.c:1:2: runtime error: planted\n")
                self.signal(signal.SIGKILL)
            return super().request(*request)

    told = Campaign(Leaves(tmp_path), seed=1).run(1, rounds=1, is_whole=False)["failures"]
    assert told[0].startswith("the server has ended: ")
    assert told[1:] == ["it ended with exit code -9", "x.c:1:2: runtime error: planted"]


# Answers what it is asked, and is busy for 0.3 s before its third answer.
_BUSY = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    for number in range(5):
        connection.recv(65536)
        until = time.thread_time() + (0.3 if number == 2 else 0)
        while time.thread_time() < until:
            pass
        connection.sendall(b"{}")
    connection.recv(65536)
"""


def test_a_server_that_is_busy_for_long_is_felt() -> None:
    with subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pulse = Pulse("127.0.0.1", int(server.stdout.readline()), server.pid)
        for _ in range(5):
            pulse.beat()
        pulse.close()
    # Where this process is kept from looking for as long, it cannot be sure.
    (stall,) = pulse.stalls + pulse.unsure
    assert (pulse.beats, stall.busy_s > 0.25) == (5, True)


def test_streams_and_sockets_do_no_harm(tmp_path: Path) -> None:
    app = RunningApp(tmp_path, api_keys=corpus.TOKEN)
    try:
        for request in corpus.prepare():
            with contextlib.closing(Wire(app.address)) as wire:
                wire.send(request)
                assert wire.read().status in (200, 201)
        talks = Conversations(app.address, seed=1, connections=4)
        asyncio.run(talks.run(600))
        assert talks.offences == []
        assert {101, 200, 400, 404} <= set(talks.statuses)
        assert {"invalid_request", "topic_not_found"} <= set(talks.messages)
        context = app.app.server.context
        eventually(lambda: context.open_connections == 0)
    finally:
        app.stop()


def test_the_same_seed_makes_the_same_attempts() -> None:
    first, second = Malformed(Random(3)), Malformed(Random(3))
    assert [first.attempt() for _ in range(300)] == [second.attempt() for _ in range(300)]


def test_abandoned_connections_leave_nothing_behind(tmp_path: Path) -> None:
    app = RunningApp(tmp_path, api_keys=corpus.TOKEN)
    try:
        report = asyncio.run(measure(app.address, per_second=300, seconds=1.5, seed=1))
        assert json.dumps(report)
        context = app.app.server.context
        eventually(lambda: context.open_connections == 0)
        assert all(key.inflight == 0 for key in context.keyring.keys)
        assert app.app.service.streams.taken == 0
    finally:
        app.stop()
