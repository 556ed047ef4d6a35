"""A read that waits misses nothing that is written from the moment on in which it looked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.http.queue_app import QueueApp
from tests.support import raw_request
from tests.support.appending import append


@pytest.fixture
def app(start: Callable[..., QueueApp]) -> QueueApp:
    return start(QueueApp)


def arrives(app: QueueApp, data: bytes) -> None:
    """On the loop: the request of the only client there is."""
    (connection,) = app.app.server.context.connections
    connection.data_received(data)


def writes(app: QueueApp, topic: str) -> None:
    """On the loop: committed before anything else happens there."""
    append(app.app.node.engine, topic, b'{"records":[{"data":"new"}]}', lambda _: None, pytest.fail)
    app.app.node.engine.queue.sync_now()


def test_a_long_poll_hears_of_what_is_written_right_behind_its_look(app: QueueApp) -> None:
    app.write("t", "old")
    wire = app.wire()
    assert wire.request("GET", "/v0/topics/t").status == 200
    ask = raw_request("POST", "/v0/topics/t/diff", b'{"from_seq":1,"wait_ms":60000}')
    app.inside(lambda: (arrives(app, ask), writes(app, "t")))
    assert [record["data"] for record in wire.read().json["records"]] == ["new"]


def test_a_topic_that_goes_has_forwarded_all_it_had(app: QueueApp) -> None:
    app.write("a", 1)
    assert app.call("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}).status == 201
    wire = app.wire()
    assert wire.request("GET", "/v0/topics/a").status == 200
    app.inside(lambda: (writes(app, "a"), arrives(app, raw_request("DELETE", "/v0/topics/a"))))
    assert wire.read().json["routers_removed"] == ["r"]
    copies = app.call("POST", "/v0/topics/b/diff", {"from_seq": 0}).json["records"]
    assert copies[-1]["data"] == "new"
