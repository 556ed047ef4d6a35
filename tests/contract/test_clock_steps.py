"""The clock of a server is set, while it runs or before it starts: what lasts, what ends, what is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.queues import as_queue
from tests.contract.server import Server, TopicHandle

DAY_MS = 86_400_000
TEN_DAYS_MS = 10 * DAY_MS
LONG_MS = 600_000
SHORT_MS = 200
# As long as a slow machine may take for all of it.
SLACK_MS = 300_000


class SteppedServer(Server):
    """Its clock is off by what `set` says."""

    command = (sys.executable, str(Path(__file__).with_name("stepped_server.py")), "serve")

    def __init__(self, data_dir: Path) -> None:
        self.off_file = data_dir.with_name("off")
        self.set(0)
        super().__init__(data_dir, {"CLOCK_OFF_FILE": str(self.off_file)})

    def set(self, off_ms: int) -> None:
        new = self.off_file.with_name("off.new")
        new.write_text(str(off_ms))
        new.replace(self.off_file)

    def ready(self) -> dict[str, object]:
        found: dict[str, object] = self.send("GET", "/v0/ready").json
        return found

    def ahead_seconds(self) -> float:
        text = self.send("GET", "/v0/metrics").body.decode()
        return float(text.partition("\ntopics_clock_ahead_seconds ")[2].partition("\n")[0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SteppedServer]:
    server = SteppedServer(tmp_path / "data").start()
    yield server
    server.kill()


def test_a_clock_that_was_ahead_for_a_while(server: SteppedServer) -> None:
    assert "clock_ahead_ms" not in server.ready()
    assert server.ahead_seconds() == 0
    for number, ending in enumerate(("none", "stop", "kill")):
        server.set(TEN_DAYS_MS)
        ahead = server.topic(f"ahead-{number}", ttl_ms=LONG_MS)
        ahead.write("of the future")
        assert "clock_ahead_ms" not in server.ready(), "the server goes by this clock, too"
        server.set(0)
        if ending != "none":
            server.restart(cleanly=ending == "stop")
        ahead.write("later")
        _check_told(server)
        _check_times(server, ahead, server.topic(f"brief-{number}", ttl_ms=SHORT_MS))
        assert ahead.state()["count"] == 2


def _check_told(server: SteppedServer) -> None:
    told = server.ready()["clock_ahead_ms"]
    assert isinstance(told, int)
    assert abs(told - TEN_DAYS_MS) < SLACK_MS
    assert abs(server.ahead_seconds() * 1000 - TEN_DAYS_MS) < SLACK_MS
    assert "time is ahead of the clock by 86" in server.log()


def _check_times(server: SteppedServer, ahead: TopicHandle, brief: TopicHandle) -> None:
    """They never fall where they are ahead. Elsewhere they follow the clock, and so do age and windows."""
    now = time.time() * 1000
    first, second = (record["$ts"] for record in ahead.diff(0)["records"])
    assert first == second > now + TEN_DAYS_MS - SLACK_MS
    keyed = server.topic(f"keyed-{brief.name}", idempotency_window_ms=SHORT_MS)
    for topic in (brief, keyed):
        topic.write("now", idempotency_key="k")
    assert abs(keyed.diff(0)["records"][0]["$ts"] - now) < SLACK_MS
    time.sleep(SHORT_MS / 1000 * 2)
    assert brief.state()["count"] == 0
    assert keyed.write("again", idempotency_key="k")["deduped"] is False


def test_leases_neither_end_nor_last_longer(server: SteppedServer) -> None:
    queue = as_queue(server.topic("jobs", type="queue", leases_durable=True))
    queue.write(1, 2)
    queue.claim(1, lease_ms=LONG_MS)
    for off_ms in (TEN_DAYS_MS, -TEN_DAYS_MS):
        queue.claim(1, lease_ms=SHORT_MS)
        server.set(off_ms)
        time.sleep(SHORT_MS / 1000 * 2)
        assert queue.counters() == (1, 1)
        assert queue.do("extend", 1, lease_ms=LONG_MS)["skipped"] == []
    # Not over a restart either, whichever way the clock is set meanwhile.
    queue.claim(1, lease_ms=SHORT_MS)
    server.stop()
    server.set(TEN_DAYS_MS)
    server.start()
    time.sleep(SHORT_MS / 1000 * 2)
    assert queue.counters() == (1, 1)
    assert queue.do("ack", 1)["acked"] == 1


def test_a_lease_ends_at_its_deadline_after_a_crash(server: SteppedServer) -> None:
    queue = as_queue(server.topic("jobs", type="queue", leases_durable=True))
    queue.write(1, 2)
    queue.claim(1, lease_ms=LONG_MS)
    queue.claim(1, lease_ms=DAY_MS)
    server.kill()
    server.set(DAY_MS // 2)
    server.start()
    assert queue.claimed(9) == [1]
    # And within its own length, where the deadline has become far away.
    queue.do("nack", 1)
    queue.claim(1, lease_ms=SHORT_MS)
    server.kill()
    server.set(-TEN_DAYS_MS)
    server.start()
    time.sleep(SHORT_MS / 1000 * 2)
    assert queue.claimed(9) == [1]
