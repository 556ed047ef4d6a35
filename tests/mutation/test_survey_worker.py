"""A change is put into functions that are there already; what is outside of them has to be imported anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.survey import Worker
from tests.mutation.survey_worker import by_file, put_in_place

CODE = """
LIMIT = max(1, 2)

class Scale:
    def __init__(self):
        self._value = 0

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = min(value, LIMIT)

    @classmethod
    def sorted(cls, values):
        return sorted(values, key=lambda one: one < 2)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    file = tmp_path / "scale.py"
    file.write_text(CODE)
    spec = importlib.util.spec_from_file_location("scale", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put(module: ModuleType, old: str, new: str) -> bool:
    assert module.__file__ is not None
    return put_in_place(module.__file__, CODE.replace(old, new), by_file()[module.__file__])


def test_a_change_inside_of_functions_is_there_at_once(module: ModuleType) -> None:
    scale = module.Scale()
    scale.value = 7
    assert (scale.value, module.Scale.sorted([1, 2])) == (2, [2, 1])
    assert put(module, "min(value", "max(value")
    assert put(module, "one < 2", "one <= 2")
    scale.value = 7
    # The one before is undone: each is made of the file.
    assert module.Scale.sorted([1, 2]) == [1, 2]


def test_a_change_outside_of_functions_is_not_put_in_place(module: ModuleType) -> None:
    assert not put(module, "max(1, 2)", "min(1, 2)")


@pytest.mark.parametrize("old", ["min(value", "max(1, 2)"])
def test_the_tests_are_asked_with_the_change(tmp_path: Path, old: str) -> None:
    file = tmp_path / "src" / "scale.py"
    file.parent.mkdir()
    file.write_text(CODE)
    (tmp_path / "tests").symlink_to(Path(__file__).parents[1])
    (tmp_path / "test_scale.py").write_text(
        "from scale import Scale\n\n"
        "def test_limit():\n    scale = Scale()\n    scale.value = 7\n    assert scale.value == 2\n\n"
        "def test_nothing():\n    pass\n"
    )
    worker = Worker(tmp_path, ["test_scale.py"])
    other = old.replace("min", "MAX").replace("max", "min").replace("MAX", "max")
    tests = ["test_scale.py::test_limit"]
    try:
        assert not worker.notices(file, CODE, tests)
        assert not worker.notices(file, CODE.replace(old, other), ["test_scale.py::test_nothing"])
        file.write_text(CODE)
        assert worker.notices(file, CODE.replace(old, other), tests)
    finally:
        worker.close()
