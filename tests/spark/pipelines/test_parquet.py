"""Files of the lake: what they say of themselves, how large they get, and when they are safe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_topics.pipelines import parquet
from pyspark_topics.pipelines.parquet import write_files
from pyspark_topics.pipelines.tables.places import place
from tests.spark.pipelines.lakes import records


def test_files_say_what_is_in_them(tmp_path: Path) -> None:
    (one,) = write_files([records(1, 3), records(4, 9)], place(str(tmp_path)))
    assert (one.rows, one.low["seq"], one.high["seq"]) == (9, 1, 9)
    assert (one.low["topic"], one.high["epoch"]) == ("orders", 1)
    assert one.size == (tmp_path / one.path).stat().st_size
    file = pq.ParquetFile(tmp_path / one.path)
    assert file.metadata.row_group(0).column(2).compression == "ZSTD"
    assert file.read()["data"].to_pylist() == [str(n) for n in range(1, 10)]


def test_files_end_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    files = list(write_files([records(n, n + 9) for n in range(1, 100, 10)], place(str(tmp_path)), 1500))
    assert 1 < len(files) < 10
    assert sum(one.rows for one in files) == 100
    assert [one.low["seq"] for one in files] == sorted(one.low["seq"] for one in files)


def test_a_file_is_synced_before_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    (one,) = write_files([records(1, 3)], place(str(tmp_path)))
    assert synced == [str(tmp_path / one.path), str(tmp_path)]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield records(1, 3)
        raise OSError("the server is gone")

    with pytest.raises(OSError, match="gone"):
        list(write_files(breaks(), place(str(tmp_path))))
    assert list(tmp_path.iterdir()) == []
