"""Small files of the lake merged into larger ones, as they come up.

Files of like size are merged eight at a time, so a record is written again only a few times on its way to a
file of the target size, however small the commits are it came in with.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pyspark_topics.pipelines.lake import Collision, Lake
from pyspark_topics.pipelines.parquet import DataFile, write_files

MERGED_AT_ONCE = 8
# Files that are no longer part of the table stay for readers that still have them in their plans.
KEEP_REMOVED_HOURS = 168
VACUUM_EVERY_S = 3600.0


@dataclass
class Compaction:
    lake: Lake
    target_bytes: int

    def __post_init__(self) -> None:
        self._vacuumed = time.monotonic() - VACUUM_EVERY_S

    def run(self, spark: SparkSession) -> int:
        """Merge what there is enough of; returns how many files went."""
        groups = due(self.lake.files(), self.target_bytes)
        if groups:
            work = partial(merge, self.lake.path, self.target_bytes)
            merged = spark.sparkContext.parallelize(groups, len(groups)).map(work).collect()
            for old, new in zip(groups, merged, strict=True):
                try:
                    self.lake.replace(old, new)
                except Collision:
                    # Some of these files are not part of the table any more. The next round sees what is.
                    self.lake.refresh()
                    break
            self._vacuum()
        return sum(len(group) for group in groups)

    def _vacuum(self) -> None:
        if time.monotonic() - self._vacuumed >= VACUUM_EVERY_S:
            self._vacuumed = time.monotonic()
            # In full: also what no commit ever named, such as files of a driver that was killed.
            self.lake.records.vacuum(KEEP_REMOVED_HOURS, dry_run=False, full=True)
            self.lake.refresh()


def due(files: list[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Groups that are worth merging: eight of about one size, or fewer that fill a file together."""
    tiers: dict[int, list[DataFile]] = defaultdict(list)
    for one in files:
        if one.size <= target_bytes // 2:
            tiers[int(math.log(target_bytes / max(one.size, 1), MERGED_AT_ONCE))].append(one)
    groups = []
    for tier in tiers.values():
        tier.sort(key=_order)
        group: list[DataFile] = []
        for one in tier:
            group.append(one)
            if len(group) == MERGED_AT_ONCE or sum(f.size for f in group) >= target_bytes:
                groups.append(group)
                group = []
    return groups


def _order(one: DataFile) -> tuple[str, int, int]:
    return one.low.get("topic", ""), one.low.get("epoch", 0), one.low.get("seq", 0)


def merge(folder: str, target_bytes: int, group: list[DataFile]) -> list[DataFile]:
    """What an executor does: the rows of these files, in order, into as few files as may be."""
    return list(write_files(_rows(folder, group), folder, target_bytes * 2))


def _rows(folder: str, group: list[DataFile]) -> Iterator[pa.RecordBatch]:
    for one in group:
        with pq.ParquetFile(os.path.join(folder, one.path)) as file:
            yield from file.iter_batches(batch_size=65_536)
