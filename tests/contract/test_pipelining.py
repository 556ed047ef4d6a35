"""Requests that share a connection keep their own heads and bodies, however their bytes arrive."""

from __future__ import annotations

import time

from tests.contract.conftest import NewTopic
from tests.contract.server import Server
from tests.support import raw_request


def test_a_request_whose_body_came_in_pieces_lends_its_head_to_no_other(
    server: Server, new_topic: NewTopic
) -> None:
    topic = new_topic()
    path = f"/v0/topics/{topic.name}"
    long = raw_request("POST", path, b'{"records": [{"data": "%b"}]}' % (b"x" * 900))
    short = raw_request("POST", path, b'{"records": [{"data": "y"}]}')
    with server.raw(raw_request("GET", "/v0/health")) as wire:
        assert wire.read().status == 200
        wire.send(long[:-500])
        time.sleep(0.05)
        wire.send(long[-500:] + short)
        assert [wire.read().status for _ in range(2)] == [200, 200]
        for request in (long, short, long + short + long):
            wire.send(request)
        assert [wire.read().status for _ in range(5)] == [200] * 5
    sizes = [len(record["data"]) for record in topic.diff()["records"]]
    assert sizes == [900, 1, 900, 1, 900, 1, 900]
