"""Shared by all tests: Spark's workers run our Python, and a skipped test fails the run in CI."""

import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from topics import compiled

# Sources are tested, and what is compiled of them only if asked for.
os.environ.setdefault(compiled.SWITCH, "0")

from tests.support import ServerProcess
from tests.support.codecs import both_codecs
from topics.log.engine import Engine
from topics.log.seal import checkpoint
from topics.log.seal.checkpoint import capture_topic
from topics.log.seal.snapshot_state import TopicState

__all__ = ["both_codecs"]

# Examples are repeatable, so that a failure can be repeated. Long searches are marked slow.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Spark starts its Python workers as the first `python3` on the PATH, which lacks our packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

# Tables are as wide as the terminal, and pytest-xdist sets a narrow one.
os.environ.pop("COLUMNS", None)


# Many engines live in this process, and a test may open a few hundred connections.
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))


def _skips_are_failures() -> bool:
    return os.environ.get("CI") == "true" or os.environ.get("TOPICS_NO_SKIPS") == "1"


def _skipped(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skips_are_failures() and session.exitstatus == pytest.ExitCode.OK and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _told(reporter: pytest.TerminalReporter) -> list[str]:
    """Return lines that tests recorded as their property "told": pytest-xdist loses their output."""
    reports = [report for how in ("passed", "failed") for report in reporter.stats.get(how, [])]
    return [
        line
        for report in reports
        if report.when == "call"
        for name, line in report.user_properties
        if name == "told"
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in _told(terminalreporter):
        terminalreporter.write_line(line)
    skipped = _skipped(config)
    if _skips_are_failures() and skipped:
        names = ", ".join(report.nodeid for report in skipped)
        terminalreporter.write_line(f"FAILED: {len(skipped)} skipped, and CI allows none: {names}", red=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One running server for all tests of a module, each of which uses topic names of its own."""
    process = ServerProcess(tmp_path_factory.mktemp("server")).start()
    yield process
    process.stop()


_FROZEN = pytest.StashKey[int]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the garbage collector from walking all tests and modules again and again."""
    gc.collect()
    gc.freeze()
    session.stash[_FROZEN] = gc.get_freeze_count()


# A walk through all objects takes half a second.
_MANY_FROZEN = 100_000


@pytest.fixture(scope="module", autouse=True)
def garbage_is_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Free servers of earlier modules: each of them excludes all that exists at its start from collection."""
    yield
    stash, frozen = request.session.stash, gc.get_freeze_count()
    if frozen > stash[_FROZEN] + _MANY_FROZEN:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        stash[_FROZEN] = gc.get_freeze_count()


@pytest.fixture(autouse=True)
def engines_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files of engines that a test leaves open, as after a crash."""
    made: list[Engine] = []
    initialize = Engine.__init__

    def noted(self: Engine, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Engine, "__init__", noted)
    yield
    for engine in made:
        engine.close(clean=False)


@pytest.fixture(autouse=True)
def snapshots_show_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the states of topics that a snapshot reuses are current."""
    capture = checkpoint.Checkpointer.capture

    def checked(self: checkpoint.Checkpointer) -> tuple[list[bytes], int]:
        captured = capture(self)
        decode = msgspec.msgpack.Decoder(TopicState).decode
        for topic in self._engine.by_id.values():
            if topic.committed:
                known, now = decode(self._states[topic.id]), capture_topic(topic)
                known.last_ts = now.last_ts  # it may belong to a record that is not committed
                assert known == now, topic.name
        assert len(self._states) == sum(topic.committed for topic in self._engine.by_id.values())
        return captured

    monkeypatch.setattr(checkpoint.Checkpointer, "capture", checked)


# Tests that share a Spark session, a cluster or a browser run in one process.
_SPARK = {"spark", "cluster"}
_TOGETHER = {"browser": "browser"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share something expensive in one process, and first."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    tests = Path(__file__).parent

    def shared_by(item: pytest.Item) -> str | None:
        if _SPARK & set(getattr(item, "fixturenames", ())):
            return "spark"
        return _TOGETHER.get(item.path.relative_to(tests).parts[0])

    for item in items:
        item.add_marker(pytest.mark.xdist_group(shared_by(item) or str(item.path)))
    items.sort(key=lambda item: shared_by(item) is None)
