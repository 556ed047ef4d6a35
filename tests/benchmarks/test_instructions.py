"""What a record costs is counted, and does not grow unnoticed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.instructions import Counted, judged, recorded, told
from benchmarks.session import ROOT


@pytest.mark.timeout(600)
def test_no_work_takes_a_tenth_more_instructions_than_recorded(
    record_property: Callable[[str, object], None],
) -> None:
    """`python -m benchmarks.instructions --record` writes down what is meant to be so."""
    now, too_much = judged()
    for line in ("instructions per record:", *told(now, recorded())):
        record_property("told", line)
    assert not too_much


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize("outcome", ["True", "False"])
def test_what_is_told_comes_from_every_process_whether_or_not_its_test_passes(
    tmp_path: Path, processes: str, outcome: str
) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it(record_property):\n"
        "    record_property('told', '1,101 +10.1% append')\n"
        f"    assert {outcome}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (outcome == "False"), done.stdout
    assert done.stdout.splitlines().count("1,101 +10.1% append") == 1, done.stdout


def test_a_change_is_told_by_its_share() -> None:
    before = Counted({"c": "1"}, {"append": 1000, "gone": 5})
    now = Counted({"c": "1"}, {"append": 1101, "new": 7})
    assert now.grown(before) == {"append": pytest.approx(0.101)}
    assert told(now, before) == ["    1,101   +10.1%  append", "        7      new  new"]


def test_a_change_is_told_but_not_judged_where_another_make_was_recorded() -> None:
    change, said = told(Counted({"c": "2"}, {"append": 1101}), Counted({"c": "1"}, {"append": 1000}))
    assert change == "    1,101   +10.1%  append"
    assert said.endswith("not judged")


def test_everything_that_is_counted_is_recorded() -> None:
    known = recorded()
    assert set(known.make) == {"machine", "interpreter", "built", "c_library", "program"}
    for word in ("append", "diff", "scan", "delivery"):
        assert any(name.startswith(word) for name in known.instructions)
