"""Each change that is said to make no difference is one that the survey makes, of code that is there."""

from __future__ import annotations

import pytest

from tests.mutation.alike import ALIKE, reason
from tests.mutation.alike_change import Alike
from tests.mutation.mutants import mutants
from tests.mutation.runner import ROOT
from tests.mutation.survey import SOURCES


@pytest.mark.parametrize("one", ALIKE, ids=lambda one: f"{one.path}: {one.new}")
def test_it_is_a_change_that_the_survey_makes(one: Alike) -> None:
    text = (ROOT / SOURCES / one.path).read_text()
    assert text.count(one.old) == 1
    assert text.replace(one.old, one.new) in [mutant.put_into(text) for mutant in mutants(text)]
    assert one.why


def test_each_is_there_once() -> None:
    assert len({(one.path, one.old, one.new) for one in ALIKE}) == len(ALIKE)


def test_others_have_no_reason() -> None:
    one = ALIKE[0]
    text = (ROOT / SOURCES / one.path).read_text()
    assert reason(one.path, text, text.replace(one.old, one.new)) == one.why
    assert reason("log/none.py", text, text.replace(one.old, one.new)) is None
    assert reason(one.path, text, text + "\n") is None
