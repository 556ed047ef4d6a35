"""While a server recovers: probes and metrics answer, data has to wait, and it says how far it is."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from topics.http.app import Application
from topics.log.recover.recovery import Recovery
from topics.values.settings import Settings


async def get(app: Application, path: str, accept: str = "*/*") -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection(*app.server.address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Recovery reports some progress, sets the first event, and waits for the second."""
    held, go_on = threading.Event(), threading.Event()
    original: Callable[[Recovery], Any] = Recovery.run

    def run(recovery: Recovery) -> Any:
        recovery._progress(0.25)
        held.set()
        assert go_on.wait(20)
        return original(recovery)

    monkeypatch.setattr(Recovery, "run", run)
    return held, go_on


async def watch_recovery(app: Application, held: threading.Event, go_on: threading.Event) -> None:
    await app.server.start()
    recovering = asyncio.create_task(app.recover())
    await asyncio.to_thread(held.wait, 20)

    status, headers, body = await get(app, "/v0/ready")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["detail"]) == (503, "not_ready", {"replay_progress": 0.25})
    assert int(headers["retry-after"]) >= 1
    assert (await get(app, "/v0/health"))[0] == 200
    assert (await get(app, "/v0/topics"))[0] == 503

    status, _, body = await get(app, "/v0/metrics")
    lines = body.decode().splitlines()
    assert status == 200
    assert "topics_ready 0" in lines
    assert "topics_recovery_progress 0.25" in lines
    assert "topics_topics 0" in lines
    assert 'topics_http_errors_total{code="not_ready"} 2' in lines
    figures = json.loads((await get(app, "/v0/metrics", "application/json"))[2])
    assert (figures["ready"], figures["replay_progress"]) == (False, 0.25)
    assert figures["series"]["topics_recovery_seconds"] > 0

    go_on.set()
    await recovering
    assert (await get(app, "/v0/ready"))[0] == 200
    assert b"\ntopics_recovery_progress 1\n" in (await get(app, "/v0/metrics"))[2]
    await app.server.stop()


def test_what_answers_while_recovering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, go_on = held_up(monkeypatch)

    async def main() -> None:
        app = Application(Settings(port=0, data_dir=str(tmp_path)))
        try:
            await watch_recovery(app, held, go_on)
        finally:
            go_on.set()

    uvloop.run(main())
