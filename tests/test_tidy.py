"""The house rules that a machine can check: imports go down only, and no module is left unused."""

import ast
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Which packages of ours each package may import, itself aside.
MAY_IMPORT = {
    "topics.values": (),
    "topics.storage": ("topics.values",),
    "topics.log": ("topics.storage", "topics.values"),
    "topics.flow": ("topics.log", "topics.storage", "topics.values"),
    "topics.keep": ("topics.flow", "topics.log", "topics.storage", "topics.values"),
    "topics.node": ("topics.keep", "topics.flow", "topics.log", "topics.storage", "topics.values"),
    "topics.http": (
        "topics.node",
        "topics.keep",
        "topics.flow",
        "topics.log",
        "topics.storage",
        "topics.values",
    ),
    "topics.client": ("topics.values",),
    # A verb parses, calls and prints: what it calls is whole. Errors have their names from below.
    "topics.cli": (
        "topics.http.app",
        "topics.http.door.connection_limit",
        "topics.node",
        "topics.keep",
        "topics.client",
        "topics.log.recover.recovery",
        "topics.storage.fileheader",
        "topics.storage.filesystem",
        "topics.values",
        "pyspark_topics",
    ),
    "pyspark_topics": (
        "topics.client",
        "topics.values",
        "topics.storage.arrow_columns",
        "topics.storage.columns",
        "topics.storage.filesystem",
        "topics.storage.segment",
    ),
}

LONG_FILE_LINES = 400
# Tests stand side by side and are read one at a time.
LONG_TEST_LINES = 500


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name; a package stands for its `__init__`."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def entry_points() -> frozenset[str]:
    """Modules that pyproject.toml hands to others: console scripts and plugins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return frozenset(target.partition(":")[0] for group in groups for target in group.values())


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that `module` imports, anywhere in its text, as the most exact name known."""
    path = modules()[module]
    return frozenset(target for target in _imported_names(module, path) if target in modules())


def _imported_names(module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            # `from topics.storage import segment` imports the module topics.storage.segment;
            # `from topics.values import Name` imports the package itself.
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in modules() else base


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_down_only(package: str) -> None:
    # The version in topics/__init__ is everybody's.
    allowed = (package, *MAY_IMPORT[package])
    wrong = [
        f"{module} imports {target}"
        for module in modules()
        if is_within(module, package)
        for target in sorted(imports(module))
        if target != "topics" and not any(is_within(target, room) for room in allowed)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_root_package_imports_nothing_of_ours() -> None:
    assert not imports("topics")


def test_every_module_is_used() -> None:
    used = {target for module in modules() for target in imports(module) if target != module}
    orphans = [
        module
        for module, path in modules().items()
        if is_within(module, "topics")
        and module not in used | entry_points()
        and path.name not in ("__init__.py", "__main__.py")
    ]
    assert not orphans, "imported by nothing: " + ", ".join(orphans)


def test_delta_tables_are_not_read_on_threads_that_call_python() -> None:
    """About one process in twenty that did so as the last thing was aborted while it ended."""
    shown = [
        *modules().values(),
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "examples").iterdir(),
    ]
    wrong = [str(path) for path in shown if path.is_file() and ".to_pyarrow_" in path.read_text()]
    assert not wrong, "use QueryBuilder instead: " + ", ".join(wrong)


@pytest.mark.filterwarnings("always:.* lines, consider:UserWarning")
def test_long_files_are_mentioned() -> None:
    files = [(path, LONG_FILE_LINES) for path in modules().values()]
    files += [(path, LONG_TEST_LINES) for path in sorted((ROOT / "tests").rglob("*.py"))]
    for path, limit in files:
        lines = len(path.read_text().splitlines())
        if lines > limit:
            warnings.warn(f"{path.relative_to(ROOT)}: {lines} lines, consider splitting it", stacklevel=1)
