"""Verbs that work without a server do so without anything of it that concerns the network."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.lab import NodeLab

_LOOK = """
import sys
from topics.cli.main import main

assert main(sys.argv[1:]) == 0
sys.exit(" ".join(sorted(name for name in sys.modules if name.startswith("topics.http"))) or 0)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With records in a segment and in the journal, and one backup of it."""
    lab = NodeLab(tmp_path / "data")
    lab.write_each("t", 10)
    lab.delete("t", before=3)
    lab.checkpoint()
    lab.write_each("t", 3)
    lab.stop()
    offline(tmp_path, "backup", "backups", "--data-dir", "data")
    return tmp_path


def offline(directory: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", _LOOK, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "data"),
        ("backup", "backups", "--data-dir", "data"),
        ("backup", "backups", "--verify"),
        ("restore", "backups", "restored"),
        ("compact", "--purge", "--data-dir", "data"),
    ],
    ids=" ".join,
)
def test_an_offline_verb_imports_nothing_of_http(directory: Path, arguments: tuple[str, ...]) -> None:
    offline(directory, *arguments)


def test_help_imports_the_command_and_nothing_else() -> None:
    """Neither the server nor the client, nor anything that had to be installed for them."""
    look = """
import sys
before = set(sys.modules)
from topics.cli.main import main
main(["--help"])
names = set(sys.modules) - before
print(*sorted(name for name in names if name.split(".")[0] not in sys.stdlib_module_names), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["topics", "topics.cli", "topics.cli.main", "topics.compiled"]


def started(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a shell starts it, which may close what it reads from and writes to."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = f'topics() {{ {shlex.quote(sys.executable)} -m topics "$@"; }}; {shell}'
    return subprocess.run(
        ["bash", "-c", command], env=buffered | environment, capture_output=True, text=True, encoding="utf-8"
    )


@pytest.mark.parametrize("arguments", ["", "key new", "list --help"])
def test_what_cannot_be_written_is_one_line(arguments: str) -> None:
    done = started(f"topics {arguments} > /dev/full")
    assert (done.returncode, done.stderr.count("\n"), "No space left" in done.stderr) == (2, 1, True)


@pytest.mark.parametrize("arguments", ["", "key new", "list --help"])
def test_a_reader_that_has_seen_enough_is_no_error(arguments: str) -> None:
    done = started(f"topics {arguments} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


def test_streams_that_are_closed() -> None:
    done = started("topics write t --url http://127.0.0.1:1 <&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")
    unasked = started("topics drop t --url http://127.0.0.1:1 <&-")
    assert (unasked.returncode, "nobody can be asked" in unasked.stderr) == (2, True)


def test_a_locale_without_letters_changes_nothing_in_a_pipe() -> None:
    done = started("topics", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0
    assert done.stdout == started("topics").stdout


@pytest.mark.parametrize("module", ["argparse", "topics.cli.errors", "topics.cli.remote.read"])
def test_ctrl_c_while_it_starts(module: str) -> None:
    """Half of a short command is imports."""
    typed = f"""
import sys
class Typed:
    def find_spec(self, name, *_):
        if name == "{module}":
            raise KeyboardInterrupt
assert "{module}" not in sys.modules
sys.meta_path.insert(0, Typed())
from topics.cli.main import main
sys.exit(main(["read", "t"]))
"""
    done = subprocess.run([sys.executable, "-c", typed], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "topics: interrupted\n")
