"""Files of the lake: what they say of themselves, how large they get, and when they are safe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pyspark_topics.pipelines import parquet
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.parquet import TableRange, read_file, write_files
from pyspark_topics.pipelines.table_schema import RECORDS
from tests.spark.pipelines.lakes import records


def test_files_say_what_is_in_them(tmp_path: Path) -> None:
    (one,) = write_files([records(1, 3), records(4, 9)], location(str(tmp_path)))
    assert (one.rows, one.low["seq"], one.high["seq"]) == (9, 1, 9)
    assert (one.low["topic"], one.high["epoch"]) == ("orders", 1)
    assert one.size == (tmp_path / one.path).stat().st_size
    file = pq.ParquetFile(tmp_path / one.path)
    assert file.metadata.row_group(0).column(2).compression == "ZSTD"
    assert file.read()["data"].to_pylist() == [str(n) for n in range(1, 10)]


def test_files_end_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    files = list(write_files([records(n, n + 9) for n in range(1, 100, 10)], location(str(tmp_path)), 1500))
    assert 1 < len(files) < 10
    assert sum(one.rows for one in files) == 100
    assert [one.low["seq"] for one in files] == sorted(one.low["seq"] for one in files)


def test_a_file_is_synced_before_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    (one,) = write_files([records(1, 3)], location(str(tmp_path)))
    assert synced == [str(tmp_path / one.path), str(tmp_path)]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield records(1, 3)
        raise OSError("the server is gone")

    with pytest.raises(OSError, match="gone"):
        list(write_files(breaks(), location(str(tmp_path))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string()])
def test_files_are_read_in_our_types_whoever_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 4)
    theirs = pa.schema([one.with_type(kind) if one.type == pa.string() else one for one in RECORDS])
    pq.write_table(pa.Table.from_batches([records(1, 9)]).cast(theirs), tmp_path / "theirs.parquet")
    (ours,) = write_files([records(10, 12)], location(str(tmp_path)))
    batches = list(read_file(location(str(tmp_path)), "theirs.parquet"))
    assert pa.Table.from_batches(batches, RECORDS).equals(pa.Table.from_batches([records(1, 9)]))
    both = TableRange(location(str(tmp_path)), (ours.path, "theirs.parquet"), "orders", 1, 2, 11)
    found = both.read(RECORDS.names)
    assert found.schema.equals(RECORDS)
    assert found["data"].to_pylist() == [str(n) for n in range(2, 12)]
    assert both.read(["seq", "tag"], pc.starts_with(ds.field("tag"), "t")).num_rows == 0
