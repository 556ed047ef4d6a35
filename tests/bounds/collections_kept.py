"""Searches the sources for collections that objects keep."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "topics"
# What a running server is made of.
ROOMS = ("codec", "core", "engine", "flow", "http", "log", "ops", "storage")
KINDS = {
    "BytesIO",
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


def all_kept() -> dict[str, set[str]]:
    """By file."""
    return {
        path.relative_to(SOURCES).as_posix(): set(kept_by(path))
        for room in ROOMS
        for path in (SOURCES / room).rglob("*.py")
    }
