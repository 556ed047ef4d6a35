"""What a load remembers of its files, and which files are its own; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines import Load
from pyspark_topics.pipelines.load import refuse_strangers


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
