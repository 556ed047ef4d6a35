"""Mutants of a piece of code: every kind is made, and each one is another program."""

from __future__ import annotations

import ast

from tests.mutation.mutants import mutants
from tests.mutation.survey import SOURCES, modules

CODE = """
LIMIT = 2 << 3

def spelled(é: int | str = 1 + 1) -> int | None:
    assert é < LIMIT
    if not é:
        return min(é, 3)
    if "é" in é: raise ValueError(f"{é + 1}")
    while é <= LIMIT < 7 and (é) is not (
        None
    ):
        é += [one for one in (1, 2) if one]
        log.warning("é")
        log.append(
            é
        )
    return 1 if é else 2
"""


def test_every_kind_of_change_is_made_once() -> None:
    assert [(mutant.line, mutant.old, mutant.new) for mutant in mutants("", CODE)] == [
        (2, "2 << 3", "2 >> 3"),
        (4, "1 + 1", "1 - 1"),
        (6, "not é", "False"),
        (6, "not é", "é"),
        (7, "min(é, 3)", "max(é, 3)"),
        (8, "'é' in é", "'é' not in é"),
        (8, "'é' in é", "False"),
        (9, "é <= LIMIT < 7", "é < LIMIT < 7"),
        (9, "é <= LIMIT < 7", "é <= LIMIT <= 7"),
        (9, "é <= LIMIT < 7 and é is not None", "not (é <= LIMIT < 7 and é is not None)"),
        (9, "é <= LIMIT < 7 and é is not None", "é <= LIMIT < 7 or é is not None"),
        (9, "é is not None", "é is None"),
        (12, "é += [one for one in (1, 2) if one]", "é -= [one for one in (1, 2) if one]"),
        (12, "one", "not one"),
        (14, "log.append(é)", "pass"),
        (17, "é", "not é"),
    ]


def test_code_outside_of_functions_is_marked() -> None:
    assert [mutant.line for mutant in mutants("", CODE) if not mutant.in_function] == [2, 4]


def test_mutants_are_programs_that_differ_and_have_the_same_lines() -> None:
    for path in modules(["storage", "log/watermarks.py"]):
        text = (SOURCES / path).read_text()
        made = [mutant.apply(text) for mutant in mutants(path, text)]
        assert len({ast.dump(ast.parse(other)) for other in [text, *made]}) == len(made) + 1
        assert {other.count("\n") for other in [text, *made]} == {text.count("\n")}
