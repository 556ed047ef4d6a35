"""House rules that a machine can check: imports go down only, rooms stay small, objects move themselves."""

import ast
import tomllib
import warnings
from collections import Counter
from functools import cache

import pytest

import topics
from tests.support.sources import (
    ROOT,
    SRC,
    code_lines,
    fields,
    import_statements,
    imports,
    imports_at_start,
    is_within,
    knots,
    modules,
    outside_assignments,
    tree,
)
from topics.cli.main import MODULES

# Packages of the server: each one may import those before it.
LAYERS = ("core", "codec", "storage", "log", "flow", "ops", "engine", "http")
# Which packages of ours each package may import, itself aside.
MAY_IMPORT = {
    **{f"topics.{name}": tuple(f"topics.{low}" for low in LAYERS[:at]) for at, name in enumerate(LAYERS)},
    "topics.client": ("topics.core",),
    # A verb parses, calls and prints. `--version` names the codec.
    "topics.cli": (
        "topics.http.app",
        "topics.http.admission.limits",
        "topics.client",
        "pyspark_topics",
        *(f"topics.{name}" for name in LAYERS if name not in ("flow", "http")),
    ),
    "pyspark_topics": (
        "topics.client",
        "topics.core",
        "topics.storage.arrow_columns",
        "topics.storage.columns",
        "topics.storage.filesystem",
        "topics.storage.segment",
    ),
}

LONG_FILE_LINES = 400
# Tests stand side by side and are read one at a time.
LONG_TEST_LINES = 500
MOST_FILES_IN_A_FOLDER = 25
# A file this short that only one other imports is a fragment of that other, unless it is imported late.
FRAGMENT_LINES, MOST_FRAGMENTS = 40, 8
# Modules that can only be understood together, types included.
LARGEST_KNOT = 6
# Import statements for every code line.
MOST_IMPORTS = 0.09
MOST_OUTSIDE_ASSIGNMENTS = 20


@cache
def entry_points() -> frozenset[str]:
    """Modules that are handed to others: console scripts, plugins, verbs, and what `topics` imports late."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    handed_out = {target.partition(":")[0] for group in groups for target in group.values()}
    verbs = {f"topics.cli.{module}" for module in MODULES.values()}
    return frozenset(handed_out | verbs | topics._HOMES.keys())


# --- imports ------------------------------------------------------------------------------------------------


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


def test_the_root_package_imports_nothing_but_the_finder() -> None:
    assert imports("topics") == {"topics.compiled"}
    assert not imports("topics.compiled")


def test_no_module_needs_itself_to_be_imported() -> None:
    cycles = knots({module: imports_at_start(module) for module in modules()})
    assert not cycles, "\n".join(map(" <-> ".join, cycles))


def test_knots_of_types_stay_small() -> None:
    large = [knot for knot in knots({m: imports(m) for m in modules()}) if len(knot) > LARGEST_KNOT]
    assert not large, "\n".join(map(" <-> ".join, large))


def test_every_module_is_used() -> None:
    used = {target for module in modules() for target in imports(module)}
    orphans = [
        module
        for module, path in modules().items()
        if is_within(module, "topics")
        and module not in used | entry_points()
        and path.name not in ("__init__.py", "__main__.py")
    ]
    assert not orphans, "imported by nothing: " + ", ".join(orphans)


def test_importing_takes_little_of_the_code() -> None:
    share = sum(map(import_statements, modules())) / sum(map(code_lines, modules()))
    assert share < MOST_IMPORTS, f"{share:.2%}"


# --- rooms --------------------------------------------------------------------------------------------------


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent.relative_to(SRC).as_posix() for path in modules().values())
    crowded = {folder: count for folder, count in files.items() if count > MOST_FILES_IN_A_FOLDER}
    assert not crowded


# The SDK and the pipelines give users a class of this name.
PUBLIC_TOO = {"Topic", "Route"}


def test_a_class_name_stands_for_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    assert {name: where for name, where in found.items() if len(where) > 1 and name not in PUBLIC_TOO} == {}


def test_fragments_are_at_home_with_whom_they_belong() -> None:
    importers = Counter(target for module in modules() for target in imports(module))
    fragments = [
        module
        for module, path in modules().items()
        if path.name != "__init__.py" and code_lines(module) < FRAGMENT_LINES and importers[module] == 1
    ]
    assert len(fragments) <= MOST_FRAGMENTS, ", ".join(fragments)


@pytest.mark.filterwarnings("always:.* lines, consider:UserWarning")
def test_long_files_are_mentioned() -> None:
    files = [(path, LONG_FILE_LINES) for path in modules().values()]
    files += [(path, LONG_TEST_LINES) for path in sorted((ROOT / "tests").rglob("*.py"))]
    for path, limit in files:
        lines = len(path.read_text().splitlines())
        if lines > limit:
            warnings.warn(f"{path.relative_to(ROOT)}: {lines} lines, consider splitting it", stacklevel=1)


# --- objects ------------------------------------------------------------------------------------------------


def test_topics_and_runs_are_moved_by_themselves() -> None:
    """An invariant has one place where it is kept: fields are assigned in the class that has them."""
    of_topic = fields("topics.log.topic", "Topic") | fields("topics.log.watermarks", "Watermarks")
    topics = outside_assignments(of_topic, ("topic", "dest", "source", "target", "reserves_for", "other"))
    runs = outside_assignments(fields("topics.log.run", "Run"), ("run", "short", "beginning"))
    assert len(topics) + len(runs) <= MOST_OUTSIDE_ASSIGNMENTS, "\n".join([*topics, *runs])


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
