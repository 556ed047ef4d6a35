"""Nothing that a client can make grow grows without a bound, and every bound has a name.

The sources are searched for collections that objects keep. Each has to be in the table, with a bound that
docs/configuration.md lists and a test that pushes it to its end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds.table import COLLECTIONS, FREE, PROOFS

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "topics"
# What a running server is made of; values and the bytes on disk keep nothing by themselves.
ROOMS = ("flow", "http", "keep", "log", "node")
KINDS = {
    "Counter",
    "OrderedDict",
    "SortedDict",
    "array",
    "bytearray",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
}
DISPLAYS = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp)


def kept_by(path: Path) -> Iterator[str]:
    """Collections that objects of this file's classes have as fields: `Class.field`."""
    for node in ast.walk(ast.parse(path.read_text())):
        # A struct of msgspec is a value that came or goes over a wire.
        if isinstance(node, ast.ClassDef) and "Struct" not in map(_name, node.bases):
            yield from dict.fromkeys(f"{node.name}.{field}" for field in _fields(node))


def _fields(owner: ast.ClassDef) -> Iterator[str]:
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_typed(node):
            yield node.target.id
    for node in ast.walk(owner):
        if isinstance(node, ast.AnnAssign) and _is_typed(node):
            yield from _own(node.target)
        elif isinstance(node, ast.Assign) and (
            isinstance(node.value, DISPLAYS) or _name(node.value) in KINDS
        ):
            for target in node.targets:
                yield from _own(target)


def _is_typed(node: ast.AnnAssign) -> bool:
    annotation = node.annotation
    if isinstance(annotation, ast.Constant):
        annotation = ast.parse(annotation.value, mode="eval").body
    sides = [annotation.left, annotation.right] if isinstance(annotation, ast.BinOp) else [annotation]
    return any(_name(side) in KINDS for side in sides)


def _own(target: ast.expr) -> Iterator[str]:
    is_own = (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    )
    if is_own:
        yield target.attr


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def test_every_collection_has_a_bound() -> None:
    found = {
        path.relative_to(SOURCES).as_posix(): set(kept_by(path))
        for room in ROOMS
        for path in (SOURCES / room).rglob("*.py")
    }
    listed = {path: set(fields) for path, fields in COLLECTIONS.items()}
    missing = {path: fields - listed.get(path, set()) for path, fields in found.items()}
    gone = {path: fields - found.get(path, set()) for path, fields in listed.items()}
    assert not {path: sorted(fields) for path, fields in missing.items() if fields}, "give them a bound"
    assert not {path: sorted(fields) for path, fields in gone.items() if fields}, "there is no such thing"


def test_every_bound_is_one_that_is_known() -> None:
    used = {bound for fields in COLLECTIONS.values() for bound in fields.values()}
    assert used <= PROOFS.keys() | set(FREE)


@pytest.mark.parametrize("bound", PROOFS)
def test_every_bound_has_a_proof(bound: str) -> None:
    path, test = PROOFS[bound]
    assert re.search(rf"^def {test}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE)


def test_the_document_lists_them_all() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    section = text.partition("## What bounds memory\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    assert {name.strip("`") for row in rows[2:] for name in row.split(", ")} == PROOFS.keys()
