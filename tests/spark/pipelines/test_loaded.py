"""What a load remembers of its files, and which files are its own; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines import Load
from pyspark_topics.pipelines.load import refuse_strangers
from pyspark_topics.pipelines.load_notes import Loaded


def test_a_file_is_taken_again_once_in_a_run(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("1\n")
    notes = Loaded(tmp_path)
    for run in ("first", "first", "second", "first"):
        notes.again([str(file)], {}, run)
        notes.jobs[-1].finish()
    assert [job.about["again"] for job in notes.jobs] == ["first", "second", "first"]
    # One that is being taken again goes on, in whichever run.
    notes.again([str(file)], {}, "third")
    notes.again([str(file)], {}, "fourth")
    assert notes.jobs[-1].about["again"] == "third"


def test_a_copy_of_added_lines_stays_as_long_as_its_job_is_not_finished(tmp_path: Path) -> None:
    copies = tmp_path / "added"
    copies.mkdir()
    notes = Loaded(tmp_path)
    for name in ("whole.json", "grown.json", "skipped.json", "done.json"):
        (tmp_path / name).write_text("1\n2\n")
        (copies / name).write_text("2\n")
        job = notes.new(str(tmp_path / name), {}, from_byte=0 if name == "whole.json" else 2)
    job.finish()
    notes.skip([str(tmp_path / "skipped.json")])
    notes.drop_copies()
    assert [path.name for path in copies.iterdir()] == ["grown.json"]
    grown = notes.jobs[1]
    notes.drop_copy(grown)
    assert [path.name for path in copies.iterdir()] == ["grown.json"]
    grown.finish()
    notes.drop_copy(grown)
    assert list(copies.iterdir()) == []


def test_what_is_no_file_of_a_load_is_neither_skipped_nor_taken_again(tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "a.json", tmp_path / "below" / "a.json"
    elsewhere.parent.mkdir()
    for path in (there, elsewhere):
        path.write_text("1\n")
    loads = {"it": Load(files=[str(tmp_path / "*.json")], into="t")}
    refuse_strangers(loads, tmp_path, {"--skip": (str(there),), "--again": ()})
    for path in (elsewhere, tmp_path / "misspelled.json"):
        with pytest.raises(PipelineFailed, match=f"--skip names {path}, which is no file of it"):
            refuse_strangers(loads, tmp_path, {"--skip": (str(path),)})
    with pytest.raises(PipelineFailed, match="no file of a load, and none is run"):
        refuse_strangers({}, tmp_path, {"--again": (str(there),)})
