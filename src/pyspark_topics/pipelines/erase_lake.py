"""The lake's part of an erasure: files that hold such records are written again without them, and removed.

    list what lies there ─▶ find and rewrite (executors) ─▶ one commit ─▶ remove what it left behind

An archive that is running may have read such records before they were deleted. The commit repeats where the
topics stand, so whatever it is about to commit collides and has to be read again; and the files it wrote
were listed, and go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import Offsets
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import TARGET_BYTES, DataFile, sync_folder, write_files

# An archive that commits often can be in the way of a rewrite for a while.
MAX_ATTEMPTS = 20
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Tagged:
    """Which records are meant: those with a tag, or with tags that begin so, in some topics or in all."""

    tag: str
    # None: all of them.
    topics: frozenset[str] | None = None
    pattern: str | None = None

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        tags = batch.column("tag")
        if self.tag.endswith("*"):
            found = pc.starts_with(tags, self.tag[:-1])
        else:
            found = pc.equal(tags, self.tag)
        names = [name for name in batch.column("topic").unique().to_pylist() if self._means(name)]
        meant = pc.is_in(batch.column("topic"), pa.array(names, pa.string()))
        return pc.and_(pc.fill_null(found, False), meant)

    def _means(self, topic: str) -> bool:
        if self.pattern is not None and re.fullmatch(self.pattern, topic):
            return True
        return self.topics is None or topic in self.topics


@dataclass(frozen=True)
class Erased:
    table: str
    records: int
    files_rewritten: int
    files_removed: int
    version: int


def erase_table(spark: SparkSession, lake: Lake, tagged: Tagged, standing: Offsets) -> Erased:
    """`standing` names the topics that must not be moved by somebody who does not know of this yet."""
    for _ in range(MAX_ATTEMPTS):
        lying = _data_files(lake.path)
        lake.refresh()
        files = lake.files()
        rewritten = [
            (old, *found)
            for old, found in zip(files, _strip(spark, lake, tagged, files), strict=True)
            if found
        ]
        at = {topic: lake.position(topic) or start for topic, start in standing.items()}
        try:
            lake.replace(
                [old for old, _, _ in rewritten],
                [new for _, _, news in rewritten for new in news],
                changed=True,
                standing=at,
            )
        except PipelineFailed:
            for _, _, news in rewritten:
                _remove(lake.path, {new.path for new in news})
            continue
        left = lying - {one.path for one in lake.files()}
        _remove(lake.path, left)
        removed = sum(count for _, count, _ in rewritten)
        return Erased(lake.path, removed, len(rewritten), len(left), lake.records.version())
    raise PipelineFailed(f"others kept committing to {lake.path}: stop them, and run this again")


def _strip(
    spark: SparkSession, lake: Lake, tagged: Tagged, files: list[DataFile]
) -> list[tuple[int, list[DataFile]] | None]:
    if not files:
        return []
    work = partial(strip_file, lake.path, tagged)
    found: list[tuple[int, list[DataFile]] | None] = (
        spark.sparkContext.parallelize(files, len(files)).map(work).collect()
    )
    return found


def strip_file(folder: str, tagged: Tagged, one: DataFile) -> tuple[int, list[DataFile]] | None:
    """What an executor does: None for a file that may stay as it is."""
    with pq.ParquetFile(os.path.join(folder, one.path)) as file:
        columns = file.iter_batches(_BATCH_ROWS, columns=["topic", "tag"])
        count = sum(pc.sum(tagged.mask(batch)).as_py() or 0 for batch in columns)
        if not count:
            return None
        return count, list(write_files(_others(file, tagged), folder, TARGET_BYTES * 2))


def _others(file: pq.ParquetFile, tagged: Tagged) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(_BATCH_ROWS):
        kept = batch.filter(pc.invert(tagged.mask(batch)))
        if kept.num_rows:
            yield kept


def _data_files(folder: str) -> set[str]:
    """What lies in the table's folder: of this version, of older ones, and what nobody committed."""
    return {path.name for path in Path(folder).glob("*.parquet")}


def _remove(folder: str, names: set[str]) -> None:
    for name in names:
        Path(folder, name).unlink(missing_ok=True)
    sync_folder(folder)
