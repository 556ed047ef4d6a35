"""CONTRIBUTING.md, docs/decisions, hooks and workflow: commands work, and what is named exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from benchmarks.areas import AREAS
from tests.docs.examples import ROOT, Example, check_answer, examples, named, run_bash, table

PAGE = ROOT / "CONTRIBUTING.md"
DECISIONS = ROOT / "docs" / "decisions"
TITLES = [
    "The question",
    "What we chose",
    "The figures then",
    "What it costs us",
    "What would change our mind",
]
TOOLS = Path(sys.executable).parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])


def makefile() -> str:
    return (ROOT / "Makefile").read_text()


# --- commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", examples(PAGE, "bash"), ids=lambda example: example.code[:50])
def test_quick_commands_run(example: Example) -> None:
    check_answer(example, run_bash(example.code.replace(".venv/bin", str(TOOLS)), folder=ROOT))


def long_commands() -> list[list[str]]:
    """Commands that are not run, because they would take too long."""
    lines = [line for block in examples(PAGE, "sh") for line in block.code.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("command", long_commands(), ids=" ".join)
def test_long_commands_can_be_run(command: list[str]) -> None:
    program, *arguments = command
    if program == "make":
        # test_targets_exist looks at the target.
        assert all(re.fullmatch(r"[a-z]+|[A-Z_]+=.+", one) for one in arguments)
    else:
        python, option, module, *rest = command
        assert (python, option) == (".venv/bin/python", "-m")
        assert find_spec(module) is not None
        described = run_bash(f"{sys.executable} -m {module} --help", folder=ROOT)
        for word in rest:
            is_file = word.endswith(".json") or (ROOT / "src/topics" / word).exists()
            is_number = word.replace(".", "").isdigit()
            is_option = word.startswith("--") and word in described
            assert word in AREAS or is_file or is_number or is_option, word


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_targets_exist(path: Path) -> None:
    """Every `make something` that a document mentions."""
    targets = set(re.findall(r"^([a-z]+):", makefile(), re.M))
    mentioned = re.findall(r"(?:`|^    |^)make ([a-z]+)", path.read_text(), re.M)
    assert set(mentioned) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_areas_of_benchmarks_exist(path: Path) -> None:
    text = re.sub(r"<!-- figures: begin -->.*", "", path.read_text(), flags=re.S)
    for arguments in re.findall(r"python -m benchmarks((?: [a-z_]+)+)", text):
        assert set(arguments.split()) <= set(AREAS)


# --- what is where ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PAGE, *sorted(DECISIONS.glob("*.md"))], ids=named)
def test_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|scripts|benchmarks|requirements)/[\w./]*)`", path.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_every_folder_of_tests_is_introduced() -> None:
    introduced = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table(PAGE, "Folder"))))
    folders = {path.parent.name for path in ROOT.glob("tests/*/*.py")}
    assert introduced | {"support"} == folders


def planned(*arguments: str) -> list[str]:
    """What make would run, line by line."""
    # A make that runs these tests would have this one announce, in its last line, the folder that it leaves.
    # And what was asked of that make is not asked of this one.
    told = ("MAKE", "PYTEST_ARGS", "TOPICS_")
    apart = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    return subprocess.run(
        ["make", "--dry-run", "--always-make", "VENV=none", *arguments],
        cwd=ROOT,
        env=apart,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def test_quick_runs_what_the_table_says() -> None:
    lines = planned("quick")
    command = lines[-1].split()
    said = {
        f"tests/{folder}"
        for names, _, is_quick in table(PAGE, "Folder")
        if is_quick == "yes"
        for folder in re.findall(r"`(\w+)`", names)
    }
    left_out = [word.removeprefix("--ignore=") for word in command if word.startswith("--ignore=")]
    run = {word for word in command if word.startswith("tests/")}
    assert {word for word in run if not word.endswith(".py")} == said
    assert all((ROOT / word).exists() for word in [*run, *left_out])
    assert all(f"`{word}`" in PAGE.read_text() for word in left_out)
    assert {"none/bin/ruff check .", "none/bin/mypy"} <= set(lines)


# --- decisions ----------------------------------------------------------------------------------------------


def test_every_decision_is_listed() -> None:
    pages = re.findall(r"^\| \[([\w-]+\.md)\]", (DECISIONS / "README.md").read_text(), re.M)
    assert sorted(pages) == sorted(path.name for path in DECISIONS.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("[a-z]*.md")), ids=named)
def test_every_decision_has_the_same_titles(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.M) == TITLES
    figures = text.partition("## The figures then\n")[2].partition("\n## ")[0]
    # A figure can be measured again with a command, or it is said that it cannot.
    sources = re.findall(r"^\*(.+?)\*(?: \((`python -m benchmarks .+?`)\))?", figures, re.M)
    assert sources
    assert all(kind == "Prototype" or (kind == "First version" and command) for kind, command in sources)


# --- files that tools expect --------------------------------------------------------------------------------


def test_the_workflow_runs_everything_on_every_push() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    # YAML takes the word `on` for true.
    assert set(workflow[True]) == {"push", "pull_request"}
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split()[:2] for command in commands] == [["make", "test"]]
    supported = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    versions = job["strategy"]["matrix"]["python"]
    assert {versions[0], versions[-1]} == {supported[0], supported[-1]}
