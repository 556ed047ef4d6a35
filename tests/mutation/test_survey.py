"""Survivors are found in a small module, and the tests of some real modules leave none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import main
from tests.mutation.mutants import mutants
from tests.mutation.survey import SOURCES, Survey, modules, own_tests

CODE = """
import functools

LIMIT = 1 + 1

def limited(function):
    @functools.wraps(function)
    def wrapper(value):
        return min(function(value), LIMIT)
    return wrapper

@limited
def doubled(value):
    return 2 * value

def large_first(values):
    if len(values) == 0:
        return []
    return sorted(values, key=lambda one: one < 2)

def counted_down(value):
    while value != 0:
        value -= 1
    return value

def unused(value):
    return value + 1
"""
TESTS = """
import sys
sys.path.insert(0, "src/topics")
from scale import counted_down, doubled, large_first

def test_doubled():
    assert [doubled(value) for value in (0.5, 1, 5)] == [1, 2, 2]

def test_large_first():
    assert large_first([1, 2]) == [2, 1]
    assert large_first([]) == []

def test_counted_down():
    assert counted_down(3) == 0

def test_that_fails_anyway():
    large_first([])
    raise AssertionError
"""
# Modules with few mutants, all of which their own tests notice.
SLICE = ["core/measurements.py", "storage/fileheader.py"]


def test_survivors_are_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src" / "topics").mkdir(parents=True)
    (tmp_path / "src" / "topics" / "scale.py").write_text(CODE)
    (tmp_path / "tests").symlink_to(SOURCES.parents[1] / "tests")
    (tmp_path / "test_scale.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    with Survey(tmp_path, ["scale.py"], ["test_scale.py", "test_broken.py"], jobs=2) as survey:
        verdicts = list(survey.judge(mutants("scale.py", CODE)))
    assert sorted((one.mutant.new, one.killed, one.tests) for one in verdicts) == [
        # A module that is imported anew, for code that runs at import and for a wrapper made at import.
        ("1 - 1", True, 3),
        ("2 // value", True, 1),
        ("False", False, 1),
        ("len(values) != 0", True, 1),
        ("max(function(value), LIMIT)", True, 1),
        ("one <= 2", True, 1),
        # It never ends.
        ("value += 1", True, 1),
        ("value - 1", False, 0),
        ("value == 0", True, 1),
    ]
    said = capfd.readouterr().err
    assert "cannot be imported: test_broken.py" in said
    assert "fails without a mutant: test_scale.py::test_that_fails_anyway" in said


def test_a_sample_is_repeated_by_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for seed in (1, 1, 2):
        assert main(["log", "--list", "--sample", "5", "--seed", str(seed)]) == 0
        shown.append(capsys.readouterr().out.splitlines())
    assert shown[0] == shown[1]
    assert shown[0] != shown[2]
    assert len(shown[0]) == 6
    assert shown[0][0] == "--seed 1"


def test_a_folder_stands_for_its_modules() -> None:
    assert modules(["log/watermarks.py", "log/remove"])[0] == "log/watermarks.py"
    assert "log/remove/ledger.py" in modules(["log/remove"])
    assert own_tests(["log/watermarks.py"]) == ["tests/log/test_watermarks.py"]


@pytest.mark.timeout(300)
def test_no_mutant_survives_in_a_slice(capsys: pytest.CaptureFixture[str]) -> None:
    tests = own_tests(SLICE)
    code = main([*SLICE, "--sample", "60", "--seed", "1", "--jobs", "1", "--tests", *tests])
    assert code == 0, capsys.readouterr().out
