"""Mutants of a piece of code: each is another program, and no place to go wrong is passed over."""

from __future__ import annotations

import ast

from tests.mutation.mutants import mutants
from tests.mutation.runner import ROOT
from tests.mutation.survey import SOURCES, Judges, modules

CODE = """
def spelled(é, b):
    assert é < b
    if not b:
        return min(é, b)
    if "é" in b: return 0
    while é <= b < 7 and (b) is not (None):
        if max(é, key=lambda one: one > 2):
            continue
        b += 1
    return é if é != b else None
"""


def test_every_kind_of_change_is_made_once() -> None:
    found = [(mutant.line, mutant.old, mutant.new.strip()) for mutant in mutants(CODE)]
    assert found == [
        (4, "condition to leave", "False"),
        (5, "min", "max"),
        (6, "condition to leave", "False"),
        (6, "in", "not in"),
        (7, "<=", "<"),
        (7, "<", "<="),
        (7, "is not", ") is ("),
        (8, "condition to leave", "False"),
        (8, "max", "min"),
        (8, ">", ">="),
        (11, "!=", "=="),
    ]


def test_mutants_are_programs_that_differ() -> None:
    for path in modules(["log/write", "storage"]):
        text = (ROOT / SOURCES / path).read_text()
        made = [mutant.put_into(text) for mutant in mutants(text)]
        assert len({ast.dump(ast.parse(other)) for other in [text, *made]}) == len(made) + 1


def test_tests_of_the_module_and_its_folder_come_first_and_then_the_quickest() -> None:
    quick, slow, own, beside = (
        "tests/a/test_b.py::test_q",
        "tests/a/test_b.py::test_s",
        "tests/log/test_run.py::test_o",
        "tests/log/test_topic.py::test_t",
    )
    seconds = {quick: 0.1, slow: 100.0, own: 1.0, beside: 0.5}
    judges = Judges({("log/run.py", 3): [slow, quick, beside, own]}, seconds)
    assert judges.of("log/run.py", 3) == [own, beside, quick]
    assert judges.of("log/run.py", 4) == []
