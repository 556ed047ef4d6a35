"""The systemd unit fits the server: what it promises, what it takes away, and what it has to leave."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.confined import CANNOT, Unit, allowed_calls
from tests.support import ServerProcess
from topics.http.server import DRAIN_S

ROOT = Path(__file__).parents[2]
PATH = ROOT / "deploy" / "systemd" / "topics.service"
HAS_SYSTEMD = shutil.which("systemd-analyze") is not None


@pytest.fixture(scope="module")
def unit() -> Unit:
    return Unit(PATH)


def test_the_unit_fits_the_server(unit: Unit) -> None:
    assert unit["Type"] == "notify"
    assert unit["ExecStart"].endswith("/topics serve")
    assert int(unit["TimeoutStopSec"].removesuffix("s")) > DRAIN_S
    assert unit["TimeoutStartSec"] == "infinity"
    # What is in files is read again, and nothing is dropped.
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    # The server's exit code for a mistake in its settings.
    assert unit["RestartPreventExitStatus"] == "2"
    assert f"TOPICS_DATA_DIR=/var/lib/{unit['StateDirectory']}" in unit.settings["Environment"]
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} == set(unit["RestrictAddressFamilies"].split())


def test_the_boot_id_can_be_read(unit: Unit) -> None:
    """It lies in /proc/sys, and no engine is built without it."""
    assert unit.get("ProcSubset") in (None, "all")
    hidden = [
        path for name in ("InaccessiblePaths", "TemporaryFileSystem") for path in [unit.get(name)] if path
    ]
    assert not hidden


def test_the_calls_of_the_write_path_are_allowed(unit: Unit) -> None:
    """Without those of AIO the server would start all the same, and sync in threads."""
    if not HAS_SYSTEMD:
        return  # nobody knows here what the names of its lists stand for
    needed = {"io_setup", "io_submit", "io_getevents", "fdatasync", "fsync", "pwritev2", "fallocate", "flock"}
    needed |= {"mmap", "madvise", "msync", "memfd_create", "eventfd2", "prlimit64", "rename", "accept4"}
    assert needed <= allowed_calls(unit)


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if not HAS_SYSTEMD:
        return  # the tests above have read it; there is no systemd to ask
    unit = tmp_path / "topics.service"
    # The program is not installed here.
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", PATH.read_text(), flags=re.M))
    result = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, "")


# --- really confined ------------------------------------------------------------------------------------


def confinement(unit_file: Path, writable: Path) -> list[str]:
    return [sys.executable, "-m", "tests.deploy.confined", str(unit_file), str(writable)]


@pytest.fixture
def confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess | None]:
    """A server under the unit's rules; None where this machine does not let us lay them down."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    tried = subprocess.run([*confinement(PATH, tmp_path), "/bin/true"], timeout=30)
    if tried.returncode == CANNOT:
        yield None
        return
    server = ServerProcess(tmp_path)
    server.command = (*confinement(PATH, tmp_path), *server.command)
    yield server
    server.stop()


def test_the_server_works_under_the_rules_of_the_unit(confined: ServerProcess | None) -> None:
    if confined is None:
        return
    confined.start()
    confined.put("/v0/topics/safe", {"durability": "fsync"})
    assert confined.post("/v0/topics/safe", {"records": [{"data": 1}]})["last_seq"] == 1
    assert confined.request("POST", "/v0/topics/safe/scan", {}).status == 200
    assert "process_open_fds" in confined.request("GET", "/v0/metrics").text
    confined.stop()
    confined.start()
    assert confined.get("/v0/topics/safe")["head_seq"] == 1
    log = (confined.directory / "server.log").read_text()
    assert "Traceback" not in log
    assert "WARNING" not in log


@pytest.mark.parametrize("forbidden", ["os.chroot('/')", "open('/written', 'w')"])
def test_the_rules_hold(forbidden: str, confined: ServerProcess | None, tmp_path: Path) -> None:
    if confined is None:
        return
    command = [*confinement(PATH, tmp_path), sys.executable, "-c", f"import os; {forbidden}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert "Operation not permitted" in result.stderr or "Read-only file system" in result.stderr


def test_a_rule_that_takes_too_much_is_noticed(confined: ServerProcess | None, tmp_path: Path) -> None:
    if confined is None:
        return
    wrong = tmp_path / "wrong.service"
    wrong.write_text(PATH.read_text().replace("ProtectProc=", "ProcSubset=pid\nProtectProc="))
    confined.command = (*confinement(wrong, tmp_path), *ServerProcess.command)
    with pytest.raises(AssertionError):
        confined.start()
    assert "boot_id" in (tmp_path / "server.log").read_text()
