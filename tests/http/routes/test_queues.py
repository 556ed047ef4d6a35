"""Queue endpoints over real sockets: answers, refusals, scopes, and restarts of a real process."""

from __future__ import annotations

import pytest

from tests.http.queue_app import QueueApp
from tests.support import Wire, eventually, raw_request


@pytest.fixture
def app(queue_app: QueueApp) -> QueueApp:
    return queue_app


def test_a_claimer_who_hangs_up_within_the_window_gets_nothing(app: QueueApp) -> None:
    app.put(claim_jitter_ms=5000)
    app.write("q", 1)
    wire = Wire(app.address)
    wire.send(raw_request("POST", "/v0/topics/q/claim", b'{"node":"gone"}'))
    eventually(lambda: len(app.window()) == 1)
    wire.close()
    eventually(lambda: app.window()[0].has_left)
    app.close_window()
    assert app.counters() == (1, 0, 0)


# --- restarts -----------------------------------------------------------------------------------------------
