"""systemd is told when the server is ready and when it stops; a start that fails is one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ServerProcess
from topics.cli.serve import Notifier


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(20)
        yield receiver


def test_ready_after_recovery_and_stopping_before_the_end(tmp_path: Path, listener: socket.socket) -> None:
    address = str(tmp_path / "notify")
    listener.bind(address)
    server = ServerProcess(tmp_path, NOTIFY_SOCKET=address).start()
    assert listener.recv(4096) == b"READY=1\nSTATUS=serving"
    server.signal(signal.SIGTERM)
    assert listener.recv(4096) == b"STOPPING=1\nSTATUS=draining"
    assert server.exit_code() == 0


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_port_file_that_has_no_folder_is_one_line(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / folder / "port"
    done = subprocess.run(
        [sys.executable, "-m", "topics", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")],
        env={**os.environ, "TOPICS_PORT_FILE": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    why = "No such file or directory" if folder == "nowhere" else "Not a directory"
    assert (done.returncode, done.stderr) == (2, f"topics: cannot write the port file {path}: {why}\n")


def test_names_in_the_abstract_namespace(listener: socket.socket) -> None:
    name = f"topics-test-{os.getpid()}"
    listener.bind(f"\0{name}")
    Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
    assert listener.recv(4096).startswith(b"READY=1")


def test_nobody_listens(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    Notifier({}).ready()
    assert not caplog.messages
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).stopping()
    assert "could not notify systemd" in caplog.text
