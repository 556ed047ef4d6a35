"""Small changes that would make code wrong, found in its syntax: boundaries, extremes and early returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_OTHER = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_EXTREMES = {"min": "max", "max": "min"}
_LEAVES = (ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """`new` instead of what stands between two places of a text, which are counted in bytes."""

    line: int
    start: int
    stop: int
    old: str
    new: str

    @property
    def what(self) -> str:
        return f"{self.old} -> {self.new}"

    def put_into(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.stop :]).decode()


def mutants(text: str) -> list[Mutant]:
    """In the order of the text."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    passed_over = _passed_over(tree)
    found = [
        Mutant(line, starts[line - 1] + start, starts[stop_line - 1] + stop, old, new)
        for node in ast.walk(tree)
        if id(node) not in passed_over
        for line, start, stop_line, stop, old, new in _changes(node, text)
    ]
    return sorted(found, key=lambda mutant: (mutant.start, mutant.new))


def _passed_over(tree: ast.AST) -> set[int]:
    """What is there for readers and type checkers alone."""
    silent = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        or (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return {id(inner) for node in silent for inner in ast.walk(node)}


def _changes(node: ast.AST, text: str) -> Iterator[tuple[int, int, int, int, str, str]]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            old, new = _OTHER[type(operator)]
            assert left.end_lineno is not None
            assert left.end_col_offset is not None
            between = _between(text, left.end_lineno, left.end_col_offset, right.lineno, right.col_offset)
            yield (
                left.end_lineno,
                left.end_col_offset,
                right.lineno,
                right.col_offset,
                old,
                # Brackets may stand on both sides of the operator.
                between.replace(old, new, 1),
            )
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
        name = node.func
        other = _EXTREMES[name.id]
        yield name.lineno, name.col_offset, name.lineno, name.col_offset + len(other), name.id, other
    elif isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVES) and len(node.body) == 1:
        test = node.test
        assert test.end_lineno is not None
        assert test.end_col_offset is not None
        yield (
            test.lineno,
            test.col_offset,
            test.end_lineno,
            test.end_col_offset,
            "condition to leave",
            "False",
        )


def _between(text: str, line: int, column: int, stop_line: int, stop_column: int) -> str:
    lines = text.encode().splitlines(keepends=True)[line - 1 : stop_line]
    lines[-1] = lines[-1][:stop_column]
    lines[0] = lines[0][column:]
    return b"".join(lines).decode()
