"""What a record costs is counted, and does not grow unnoticed."""

import pytest

from benchmarks.instructions import Counted, judged, recorded, told


@pytest.mark.timeout(600)
def test_no_work_takes_a_tenth_more_instructions_than_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m benchmarks.instructions --record` writes down what is meant to be so."""
    now, too_much = judged()
    with capsys.disabled():
        print("", "instructions per record:", *told(now, recorded()), sep="\n")
    assert not too_much


def test_a_change_is_told_by_its_share() -> None:
    before = Counted({"c": "1"}, {"append": 1000, "gone": 5})
    now = Counted({"c": "1"}, {"append": 1101, "new": 7})
    assert now.grown(before) == {"append": pytest.approx(0.101)}
    assert told(now, before) == ["    1,101   +10.1%  append", "        7      new  new"]


def test_everything_that_is_counted_is_recorded() -> None:
    known = recorded()
    assert set(known.make) == {"machine", "interpreter", "built", "c_library", "program"}
    for word in ("append", "diff", "scan", "delivery"):
        assert any(name.startswith(word) for name in known.instructions)
