"""Tables filled without a server, and what is in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines.lake import Gap, Lake
from pyspark_topics.pipelines.parquet import DataFile, write_files
from pyspark_topics.pipelines.table_schema import RECORDS


def records(first: int, last: int, topic: str = "orders") -> pa.RecordBatch:
    count = last - first + 1
    columns = {
        "topic": [topic] * count,
        "epoch": [1] * count,
        "seq": list(range(first, last + 1)),
        "ts": [n * 1000 for n in range(first, last + 1)],
        "data": [str(n) for n in range(first, last + 1)],
    }
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in RECORDS]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def add(lake: Lake, first: int, last: int, *gaps: Gap) -> list[DataFile]:
    files = list(write_files([records(first, last)], lake.location))
    at = lake.position("orders")
    lake.commit(files, {} if at is None else {"orders": at}, {"orders": StreamOffset(last, 1)}, gaps)
    return files


def forget_gaps(lake: Lake) -> None:
    """As after a crash between the two commits of an archive: the gaps are no rows yet."""
    max(Path(f"{lake.path}_gaps/_delta_log").glob("*.json")).unlink()


def seqs(lake: Lake) -> list[int]:
    found: list[int] = Lake(lake.path).records.to_pyarrow_table()["seq"].to_pylist()
    return sorted(found)
