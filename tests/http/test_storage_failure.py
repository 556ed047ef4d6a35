"""A disk that fails under a running server: what it answers is the truth, or it gives no answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.http.streaming import RunningApp
from tests.support import Wire, raw_request
from tests.support.arrow import arrow_stream
from topics.storage.filesystem import File

WRITE = raw_request("POST", "/v0/topics/t", b'{"records":[{"data":"refused"}]}')
BULK = raw_request(
    "POST",
    "/v0/topics/t/append",
    arrow_stream({"data": ['"refused"']}),
    {"Content-Type": "application/vnd.apache.arrow.stream"},
)


@pytest.fixture
def app(tmp_path: Path) -> RunningApp:
    app = RunningApp(tmp_path / "data")
    app.call("PUT", "/v0/topics/t", {"durability": "fsync"})
    app.write("t", "kept")
    # Syncs that go through the kernel's own queue do not pass where this test can make them fail.
    app.inside(lambda: app.app.node.commit._kernel.close())
    app.inside(lambda: setattr(app.app.node.commit, "_kernel", None))
    return app


def fail_syncs(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next so many of the journal."""
    real, left = File.sync, [times]

    def sync(file: File) -> None:
        if file.path.endswith(".journal") and left[0]:
            left[0] -= 1
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr(File, "sync", sync)


def records(app: RunningApp) -> list[str]:
    return [record["data"] for record in app.call("POST", "/v0/topics/t/diff", {}).json["records"]]


def restarted(app: RunningApp) -> RunningApp:
    app.stop()
    return RunningApp(Path(app.app.node.engine.dirs.root))


def test_a_write_that_was_answered_500_is_not_there(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_syncs(monkeypatch, 1)
    answer = app.call("POST", "/v0/topics/t", {"records": [{"data": "refused"}]})
    assert (answer.status, answer.code) == (500, "internal")
    assert app.call("GET", "/v0/ready").json["reason"] == "storage_failed"
    assert records(app) == ["kept"]
    again = restarted(app)
    try:
        assert records(again) == ["kept"]
        assert again.write("t", "more")["seqs"] == [2]
    finally:
        again.stop()


def by_http(app: RunningApp) -> Callable[[], bool]:
    wire = app.wire()
    wire.send(WRITE)
    return wire.at_end


def by_arrow(app: RunningApp) -> Callable[[], bool]:
    wire = app.wire()
    wire.send(BULK)
    return wire.at_end


def by_socket(app: RunningApp) -> Callable[[], bool]:
    client = app.socket()
    client.send(op="publish", topic="t", records=[{"data": "refused"}], request_id=1)

    def closes_without_a_word() -> bool:
        with contextlib.suppress(ConnectionError):
            return client.socket.recv(65536) == b""
        return True

    return closes_without_a_word


@pytest.mark.parametrize("send", [by_http, by_arrow, by_socket])
def test_where_nobody_can_tell_no_answer_is_given(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch, send: Callable[[RunningApp], Callable[[], bool]]
) -> None:
    fail_syncs(monkeypatch, 1000)
    assert send(app)()
    # What comes then was never written, and hears so; reads go on.
    answer = app.call("POST", "/v0/topics/t", {"records": [{"data": "later"}]})
    assert (answer.status, answer.code) == (500, "internal")
    assert records(app) == ["kept"]
    monkeypatch.undo()
    app.stop()


def test_a_full_disk_beside_the_journal_is_told_as_one(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a stage finds no room before any append does."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(File, "write", full)
        wire = Wire(app.address)
        body = arrow_stream({"data": ["1"]})
        kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
        answer = wire.request("PUT", "/v0/stages/s/parts/0?topic=t", body, kind)
        wire.close()
    assert (answer.status, answer.code) == (507, "disk_full")
    assert answer.headers["retry-after"] == "1"
    app.stop()
