"""The command that counts the calls of a request runs, and lists every shape. No bound is asserted."""

from __future__ import annotations

import json

import pytest

from tests import walk


def test_the_command_lists_every_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert walk.main(["--json", "--walks", "1"]) == 0
    shapes = json.loads(capsys.readouterr().out)
    assert sorted(shape["shape"] for shape in shapes) == sorted(walk.names())
    for shape in shapes:
        assert 0 < shape["files"] <= shape["calls"], shape
        assert shape["files"] == len(shape["files_in_order"])
        assert shape["calls"] == len(shape["calls_in_order"])
    assert [shape["calls"] for shape in shapes] == sorted((shape["calls"] for shape in shapes), reverse=True)


def test_the_table_has_the_files_and_the_calls_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert walk.main(["--walks", "1", "--shape", "two records", "--files", "--calls"]) == 0
    out = capsys.readouterr().out
    assert "two records           |" in out
    assert "files of two records:\n  http/" in out
    assert "calls of two records, API keys:\n  http/" in out
