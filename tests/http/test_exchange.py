import asyncio
import logging

import pytest

from topics.core.errors import ApiError
from topics.http.routing import Body, Route


def test_defects_are_logged_and_not_told(serve, caplog):
    def broken(exchange):
        raise KeyError("inner secret")

    async def broken_later(exchange):
        await asyncio.sleep(0)
        raise KeyError("inner secret")

    routes = [
        Route(method="POST", template="/now/:topic", handler=broken, body=Body.OPTIONAL),
        Route(method="POST", template="/later/:topic", handler=broken_later, body=Body.OPTIONAL),
    ]
    wire = serve(routes, keys="hush").connect()
    for path in ("/now/abc", "/later/abc"):
        with caplog.at_level(logging.ERROR, "topics.http"):
            answer = wire.request("POST", path, headers={"Authorization": "Bearer hush"})
        assert (answer.status, answer.code) == (500, "internal")
        assert b"inner secret" not in answer.body
        assert "KeyError" in caplog.text
        assert "hush" not in caplog.text
        assert len(caplog.records) == 1
        caplog.clear()


def test_closing_is_told_once_to_a_parked_request(serve, wait_until):
    seen = []

    def park(exchange):
        exchange.on_close(lambda: seen.append(exchange))

    running = serve([Route(method="GET", template="/", handler=park)], keys="k")
    wire = running.connect()
    wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n\r\n")
    wait_until(lambda: running.inflight() == 1)
    wire.close()
    wait_until(lambda: len(seen) == 1)
    exchange = seen[0]
    assert exchange.closed
    assert running.inflight() == 0
    exchange.reply(b"too late")
    exchange.fail(ApiError("internal", "too late"))
    exchange.on_close(lambda: seen.append("at once"))
    assert seen[1] == "at once"
    assert exchange.open_stream(b"text/event-stream").closed


def test_head_gets_the_head_of_the_answer_to_get(serve):
    def stream(exchange):
        exchange.open_stream(b"text/event-stream").close()

    wire = serve(
        [
            Route(method="GET", template="/", handler=lambda exchange: exchange.reply(b"xyz")),
            Route(method="GET", template="/stream", handler=stream, event_stream=True),
            Route(method="POST", template="/post", handler=lambda exchange: exchange.reply(b"x")),
        ]
    ).connect()
    for _ in range(2):
        answer = wire.request("HEAD", "/")
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "3")
        assert answer.headers["content-type"] == "application/json"
    assert wire.request("HEAD", "/nowhere").status == 404
    for path, allowed in (("/stream", "GET"), ("/post", "POST")):
        answer = wire.request("HEAD", path)
        assert (answer.status, answer.body, answer.headers["allow"]) == (405, b"", allowed)
    assert wire.request("GET", "/").body == b"xyz"


@pytest.mark.parametrize(
    ("trouble", "status", "code", "message"),
    [
        (OSError(5, "Input/output error", "/secret/path"), 500, "internal", "Input/output error"),
        (OSError(28, "No space left on device", "/secret/path"), 507, "disk_full", ""),
        (MemoryError(), 429, "throttled", "no memory"),
    ],
)
def test_a_machine_at_its_limits_is_said_to_be_so(serve, caplog, trouble, status, code, message):
    async def troubled(exchange):
        raise trouble

    running = serve([Route(method="GET", template="/", handler=troubled)])
    relieved = []
    running.server.context.relieve = lambda: relieved.append(True)
    answer = running.connect().request("GET", "/")
    assert len(relieved) == (status == 429)
    assert (answer.status, answer.code) == (status, code)
    assert message in answer.json["error"]["message"]
    assert b"secret" not in answer.body
    assert "Traceback" not in caplog.text
