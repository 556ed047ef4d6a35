"""Mutants of a source file, made from its syntax tree. Each one changes a single expression or statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.FloorDiv),
    (ast.LShift, ast.RShift),
    (ast.BitAnd, ast.BitOr),
    (ast.And, ast.Or),
)
_OTHER = dict(_PAIRS) | {other: one for one, other in _PAIRS}
_OTHER |= {ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitXor: ast.BitOr}
_BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_EXTREMES = {"min": "max", "max": "min"}
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LOG_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Mutant:
    """`new_text` instead of the bytes from `start` to `stop` of a file; `old` and `new` are for people."""

    path: str
    line: int
    end_line: int
    start: int
    stop: int
    old: str
    new: str
    new_text: str
    # Code outside of functions runs only while its module is imported.
    in_function: bool

    def apply(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new_text.encode() + data[self.stop :]).decode()


def mutants(path: str, text: str) -> list[Mutant]:
    """Return the mutants of a file in the order of its text."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, in_function in _walk(ast.parse(text), in_function=False):
        for target, other in _changes(node):
            assert target.end_lineno is not None
            assert target.end_col_offset is not None
            new = ast.unparse(other)
            # Later lines keep their numbers, so that only the mutated function differs.
            padding = "\n" * (target.end_lineno - target.lineno)
            found.append(
                Mutant(
                    path,
                    target.lineno,
                    target.end_lineno,
                    starts[target.lineno - 1] + target.col_offset,
                    starts[target.end_lineno - 1] + target.end_col_offset,
                    ast.unparse(target),
                    new,
                    f"({new}{padding})" if isinstance(target, ast.expr) else new + padding,
                    in_function,
                )
            )
    return sorted(found, key=lambda mutant: (mutant.start, mutant.stop, mutant.new))


def _walk(node: ast.AST, *, in_function: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node that runs, and whether it is in a function."""
    # Python 3.11 has no true positions inside of f-strings.
    if isinstance(node, (ast.Assert, ast.JoinedStr)) or _is_for_types(node) or _is_logging(node):
        return
    yield node, in_function
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        inside = in_function or (isinstance(node, _FUNCTIONS) and name == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, in_function=inside)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_logging(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.attr in _LOG_LEVELS
    )


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Yield what is replaced, and what replaces it."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[index] = _OTHER[type(operator)]()  # type: ignore[call-overload]
            yield node, other
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OTHER:
        swapped = copy.deepcopy(node)
        swapped.op = _OTHER[type(node.op)]()  # type: ignore[assignment]
        yield node, swapped
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
        call = copy.deepcopy(node)
        call.func = ast.Name(_EXTREMES[node.func.id])
        yield node, call
    elif isinstance(node, ast.Expr) and _is_call(node.value):
        yield node, ast.Pass()
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield from _negation(node.test)
        if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], _EXITS):
            yield node.test, ast.Constant(False)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from _negation(test)


def _is_call(value: ast.expr) -> bool:
    return isinstance(value.value if isinstance(value, ast.Await) else value, ast.Call)


def _negation(test: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the negation of a condition unless its operator has the negation as a mutant already."""
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    is_equality = (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], _BOUNDARIES)
    )
    if not (is_negated or is_equality or isinstance(test, ast.Constant)):
        yield test, ast.UnaryOp(ast.Not(), test)
