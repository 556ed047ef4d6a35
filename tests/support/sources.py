"""The sources as data: modules, their imports, their length, and assignments."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

_SILENT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@cache
def modules() -> dict[str, Path]:
    """Return our modules by dotted name. A package stands for its `__init__`."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    path = modules()[module]
    return ast.parse(path.read_text(), str(path))


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


# --- imports ------------------------------------------------------------------------------------------------


@cache
def imports(module: str) -> frozenset[str]:
    """Return our modules that `module` imports anywhere, by their most exact names."""
    return _named(module, ast.walk(tree(module)))


@cache
def imports_at_start(module: str) -> frozenset[str]:
    """Return our modules that `module` imports at its own import: not for types, not inside a function."""
    return _named(module, _run_at_import(tree(module)))


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _run_at_import(child)


def _named(module: str, nodes: Iterator[ast.AST]) -> frozenset[str]:
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            # `from topics.storage import segment` imports the module topics.storage.segment;
            # `from topics.core import Name` imports the package itself.
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                names.add(inner if inner in modules() else base)
    return frozenset(name for name in names if name in modules() and name != module)


def knots(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return groups of modules that all lead to each other (Tarjan), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return sorted(found, key=len, reverse=True)


# --- size ---------------------------------------------------------------------------------------------------


@cache
def code_lines(module: str) -> int:
    """Count lines with code, without blanks, comments and docstrings."""
    text = modules()[module].read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                assert first.end_lineno is not None
                lines.difference_update(range(first.lineno, first.end_lineno + 1))
    return len(lines)


def import_statements(module: str) -> int:
    return sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(tree(module)))


# --- assignments --------------------------------------------------------------------------------------------


def fields(module: str, class_name: str) -> frozenset[str]:
    """Return the fields that a dataclass declares."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            declared = {ast.unparse(s.target) for s in node.body if isinstance(s, ast.AnnAssign)}
            assert declared, f"{class_name} declares no fields"
            return frozenset(declared)
    raise LookupError(f"{module} has no class {class_name}")


def outside_assignments(names: Collection[str], held_as: Collection[str]) -> list[str]:
    """Return where one of these fields is assigned on a variable with one of these names, except `self`."""
    found = []
    for module in modules():
        if not is_within(module, "topics"):
            continue
        for node in ast.walk(tree(module)):
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and target.attr in names:
                    owner = ast.unparse(target.value)
                    if owner != "self" and owner.rpartition(".")[2].lstrip("_") in held_as:
                        found.append(f"{module}:{node.lineno} {owner}.{target.attr}")  # type: ignore[attr-defined]
    return found


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
