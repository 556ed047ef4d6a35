"""docs/architecture.md: the picture shows the packages, and what the text names exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.examples import ROOT

PAGE = ROOT / "docs" / "architecture.md"
_FILE = re.compile(r"`([\w/]+\.py)`")
_FOLDER = re.compile(r"`((?:\w+/)+\w*)`")
# A function is written with brackets; a class has a capital letter.
_NAME = re.compile(r"`((?:\w+\.)*(?:_?[A-Z]\w*|\w+\(\)|(?<=\.)\w+))`")


def test_the_picture_is_what_the_packages_are() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/architecture.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def paragraphs() -> list[str]:
    """Paragraphs and items of lists: what is named in one has to be in a file that the same one names."""
    return re.split(r"\n\n|\n(?=\d+\. )", PAGE.read_text())


def found(name: str) -> Path:
    return next(
        (p for p in (ROOT / "src/topics" / name, ROOT / "src" / name, ROOT / name) if p.exists()), ROOT
    )


@cache
def defined(path: Path) -> frozenset[str]:
    """Functions, classes and their methods, and what a module assigns."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {
                f"{node.name}.{inner.name}" for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)
            }
            names |= {
                f"{node.name}.{inner.name}"
                for inner in ast.walk(node)
                if isinstance(inner, ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


@pytest.mark.parametrize("text", paragraphs(), ids=lambda text: text.strip()[:40])
def test_what_is_named_exists(text: str) -> None:
    files = {name: found(name) for name in _FILE.findall(text)}
    assert not [name for name, path in files.items() if path == ROOT]
    for name in _FOLDER.findall(text):
        assert found(name) != ROOT or name == "damaged/", name
    known = {name for path in files.values() for name in defined(path)}
    missing = {name for name in _NAME.findall(text) if name.removesuffix("()") not in known}
    assert not missing, f"in none of {sorted(files)}: {missing}"


def test_enough_is_named() -> None:
    """The pattern above finds names at all."""
    text = PAGE.read_text()
    assert len(_FILE.findall(text)) > 50
    assert len(_NAME.findall(text)) > 50
