"""Files of the lake: what they say of themselves, how large they get, and when they are safe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

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


def large(seq: int) -> pa.RecordBatch:
    """One record, and a row group of its own."""
    one = records(seq, seq)
    at = one.schema.get_field_index("data")
    return one.set_column(at, one.schema.field(at), pa.array(["x" * (65 << 20)]))


def test_files_end_at_the_target_size(tmp_path: Path) -> None:
    files = list(write_files(map(large, (1, 2, 3)), location(str(tmp_path)), 1000))
    assert [(one.rows, one.low["seq"]) for one in files] == [(1, 1), (1, 2), (1, 3)]


def test_a_file_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    def breaks() -> Iterator[pa.RecordBatch]:
        yield large(1)
        raise OSError("the server is gone")

    with pytest.raises(OSError, match="gone"):
        list(write_files(breaks(), location(str(tmp_path))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string()])
def test_files_are_read_in_our_types_whoever_wrote_them(tmp_path: Path, kind: pa.DataType) -> None:
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
