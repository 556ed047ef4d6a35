"""`topics up`: the server and what runs beside it, kept alive and ended together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import refused
from tests.support import ServerProcess, eventually

PATIENCE_S = 60.0


class Up(ServerProcess):
    """`topics up` instead of `topics serve`."""

    patience_s = PATIENCE_S

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__(directory)
        self.arguments = arguments

    @property
    def command(self) -> tuple[str, ...]:  # type: ignore[override]
        return (sys.executable, "-m", "topics.cli.main", "up", *self.arguments)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        eventually(condition, PATIENCE_S, self.log, every_s=0.02)

    def wait_until_ready(self, times: int = 1) -> None:
        self.wait_for(lambda: self.log().count("listening on") >= times)
        self.address = self.port_file.read_text().strip()

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(pid) for path in listed for pid in path.read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    running.kill()


def test_a_server_that_dies_is_started_again_where_it_was(up: Up) -> None:
    up.launch()
    up.wait_until_ready()
    address = up.address
    up.post("/v0/topics/t", {"records": [{"data": 1}]})
    (server,) = up.children()
    os.kill(server, signal.SIGKILL)
    up.wait_until_ready(times=2)
    assert up.address == address
    assert up.post("/v0/topics/t/diff", {})["records"][0]["data"] == 1
    assert "server | ended with signal 9, starting it again in 1 s" in up.log()
    children = up.children()
    assert up.end(signal.SIGTERM) == 0
    assert not any(map(is_alive, children))


def test_without_pipelines_nothing_of_spark_is_started(up: Up) -> None:
    (up.directory / "none.toml").write_text("# no pipeline yet\n")
    up.arguments = ("--pipelines", str(up.directory / "none.toml"))
    up.launch()
    up.wait_until_ready()
    up.wait_for(lambda: "ready on http" in up.log())
    assert len(up.children()) == 1
    assert up.end(signal.SIGTERM) == 0


def test_its_children_do_not_outlive_it(up: Up) -> None:
    up.launch()
    up.wait_until_ready()
    (server,) = up.children()
    assert up.process is not None
    up.process.kill()
    up.process.wait()
    up.wait_for(lambda: not is_alive(server))


def test_a_mistake_ends_everything(up: Up) -> None:
    """In a declaration, which shows only when the server is up already."""
    (up.directory / "bad.toml").write_text('[pipeline.it]\nkind = "archiv"\n')
    up.arguments = ("--pipelines", str(up.directory / "bad.toml"))
    up.launch()
    assert up.exit_code() == 2
    assert 'pipeline it is of kind "archiv"; the kinds are: ' in up.log()
    assert "Traceback" not in up.log()


def test_pipelines_that_are_done_leave_the_server_alone(up: Up) -> None:
    (up.directory / "job.py").write_text(
        "from pyspark_topics.pipelines import Declaration\n"
        "class Job:\n"
        "    kind, follows = 'job', False\n"
        "    def run(self, context):\n"
        "        from pyspark_topics.pipelines.context import Outcome\n"
        "        return Outcome(lines=('all done',))\n"
        "pipelines = Declaration({'it': Job()})\n"
    )
    up.arguments = ("--pipelines", str(up.directory / "job.py"))
    up.launch()
    up.wait_until_ready()
    up.wait_for(lambda: "all done" in up.log() and len(up.children()) == 1)
    assert up.get("/v0/ready")["status"]
    assert up.end(signal.SIGTERM) == 0
    assert "it (job) done" in up.log()


def test_a_server_that_cannot_start_ends_everything(up: Up, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    up.launch()
    assert up.exit_code() == 2
    assert "Traceback" not in up.log()


def test_mistakes_are_seen_before_anything_starts(tmp_path: Path) -> None:
    assert "cannot read" in refused("up", "--pipelines", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[")
    assert "this is not TOML" in refused("up", "--pipelines", tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "this is not text" in refused("up", "--pipelines", tmp_path / "binary.toml")


def test_a_setting_that_cannot_be_read_is_told_before_anything_starts() -> None:
    assert "TOPICS_PORT" in refused("up", "--port", "42o0")
    assert "did you mean TOPICS_PORT?" in refused("up", TOPICS_PRT="1")


def test_the_file_of_settings_counts_for_the_server(up: Up) -> None:
    (up.directory / "topics.toml").write_text("seq_base = 9\n")
    up.arguments = ("--config", str(up.directory / "topics.toml"))
    up.launch()
    up.wait_until_ready()
    assert up.post("/v0/topics/t", {"records": [{"data": 1}]})["first_seq"] == 9
    assert up.end(signal.SIGTERM) == 0


def test_a_hangup_is_passed_on_to_the_server(up: Up) -> None:
    up.launch()
    up.wait_until_ready()
    up.signal(signal.SIGHUP)
    up.wait_for(lambda: "settings were read again" in up.log())
    assert up.get("/v0/ready")["status"]
    assert up.end(signal.SIGTERM) == 0
