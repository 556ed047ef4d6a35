"""What the package says about itself, and that client and command do without what only a server needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.command import topics

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Runs the command where none of the packages that an extra brings can be found.
_WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from topics.cli.main import main
code = main(sys.argv[2:])
rooms = ("http", "engine", "ops", "flow", "log", "storage")
print(*sorted(name for name in sys.modules if name.startswith(tuple(f"topics.{room}" for room in rooms))))
sys.exit(code)
"""


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert match is not None
    return match.group()


EXTRAS = {
    extra: {name_of(requirement) for requirement in requirements}
    for extra, requirements in PROJECT["optional-dependencies"].items()
}
BROUGHT_BY_EXTRAS = EXTRAS["server"] | EXTRAS["arrow"] | EXTRAS["spark"]


def without_extras(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRAS, ",".join(BROUGHT_BY_EXTRAS), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")},
    )
    return done.returncode, done.stdout, done.stderr


def test_its_name_and_what_it_needs() -> None:
    assert PROJECT["name"] == "topics-log"
    assert PROJECT["requires-python"] == ">=3.11"
    assert {name_of(each) for each in PROJECT["dependencies"]} == {"httptools", "msgspec", "rich"}
    assert {"server", "arrow", "spark", "otel"} <= set(EXTRAS)
    assert PROJECT["scripts"]["topics"] == "topics.cli.main:main"


def test_the_locks_hold_what_is_needed() -> None:
    locked = {name_of(line) for line in (ROOT / "requirements" / "base.txt").read_text().splitlines()}
    assert {name_of(each) for each in PROJECT["dependencies"]} | EXTRAS["server"] <= locked
    assert not {"pyspark", "deltalake"} & locked
    tested = {name_of(line) for line in (ROOT / "requirements" / "test.txt").read_text().splitlines()}
    assert locked <= tested
    assert EXTRAS["arrow"] | EXTRAS["spark"] <= tested


def test_nothing_says_to_install_the_other_project() -> None:
    wrong = re.compile(r"pip install[^\n`]*?['\"\s]topics(\[|['\"`\s]|$)", re.M)
    ours = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    ours += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "Containerfile", ROOT / "compose.yaml"]
    found = [str(path) for path in ours if path.is_file() and wrong.search(path.read_text())]
    assert not found
    assert wrong.search("pip install 'topics[spark]'")
    assert wrong.search("pip install topics\n")
    assert not wrong.search("pip install 'topics-log[spark]' '/opt/topics[spark]'")


@pytest.mark.parametrize("asked", ["--version", "--help"])
def test_version_and_help_import_no_room_of_the_server(asked: str) -> None:
    code, output, errors = without_extras(asked)
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == ""
    if asked == "--version":
        assert re.fullmatch(r"topics \d+\.\d+\.\d+\S*", output.splitlines()[0])


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve", "--port", "0"), "server"),
        (("check", "data"), "server"),
        (("config",), "server"),
        (("demo",), "server"),
        (("backup", "backups", "--data-dir", "data"), "server"),
        (("pipeline", "list", "pipelines.toml"), "spark"),
    ],
    ids=str,
)
def test_what_lacks_an_extra_says_which(arguments: tuple[str, ...], extra: str) -> None:
    code, _, errors = without_extras(*arguments)
    assert code == 2, errors
    assert f"topics-log[{extra}]" in errors
    assert errors.count("\n") == 1


def test_keys_can_be_made_without_a_server() -> None:
    code, output, _ = without_extras("key", "new")
    assert code == 0
    assert output.startswith("secret: tk_")
    assert output.splitlines()[-1] == ""


@pytest.mark.parametrize("arguments", [("write", "orders", "1"), ("queue", "claim", "mail")], ids=str)
def test_verbs_about_records_do_without_the_server(arguments: tuple[str, ...]) -> None:
    code, output, errors = without_extras(*arguments, "--url", "http://127.0.0.1:1")
    assert (code, output.strip()) == (4, ""), errors


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "topics", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, topics("--version").output)
