"""Small files of a table merged into larger ones, and files that no version names removed.

Files of about one size are merged eight at a time, so a record is rewritten only a few times on its way to a
file of the target size, however small the commits are.
"""

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_topics.pipelines.delta_table import Collision, Location
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import DataFile, read_file, write_files
from pyspark_topics.pipelines.table_schema import Layout, shaped
from pyspark_topics.session import on_executors

MERGED_AT_ONCE = 8
# Files that are no longer part of the table stay for readers that still have them in their plans.
KEEP_REMOVED_HOURS = 168
VACUUM_EVERY_S = 3600.0


# --- merging --------------------------------------------------------------------------------------------


@dataclass
class Compaction:
    lake: Lake
    target_bytes: int
    cluster_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Where there was nothing there is nothing to remove; others may have been killed.
        self._vacuumed = time.monotonic() - (0 if self.lake.is_new else VACUUM_EVERY_S)

    def run(self, spark: SparkSession) -> int:
        """Merge what there is enough of; returns how many files went."""
        groups = due(self.lake.files(), self.target_bytes)
        if groups:
            layout = Layout(self.lake.partition_by, self.cluster_by)
            work = partial(merge, self.lake.location, self.target_bytes, layout, self.lake.columns)
            merged = on_executors(spark, work, groups)
            for old, new in zip(groups, merged, strict=True):
                try:
                    self.lake.replace(old, new)
                except Collision:
                    # Some of these files are not part of the table any more. The next round sees what is.
                    self.lake.refresh()
                    break
        self.vacuum()
        return sum(len(group) for group in groups)

    def vacuum(self) -> None:
        """From time to time, whether there is something to merge or not: others may have been killed."""
        if time.monotonic() - self._vacuumed >= VACUUM_EVERY_S:
            self._vacuumed = time.monotonic()
            self.lake.vacuum(KEEP_REMOVED_HOURS)


def due(files: list[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Groups that are worth merging: eight of about one size, or fewer that fill a file together."""
    tiers: dict[Any, list[DataFile]] = defaultdict(list)
    for one in files:
        if one.size <= target_bytes // 2:
            size = int(math.log(target_bytes / max(one.size, 1), MERGED_AT_ONCE))
            tiers[size, tuple(sorted(one.partition.items()))].append(one)
    groups = []
    for tier in tiers.values():
        group: list[DataFile] = []
        for one in sorted(tier, key=_order):
            group.append(one)
            if len(group) == MERGED_AT_ONCE or sum(f.size for f in group) >= target_bytes:
                groups.append(group)
                group = []
    return groups


def _order(one: DataFile) -> tuple[str, int, int]:
    return one.low.get("topic", ""), one.low.get("epoch", 0), one.low.get("seq", 0)


def merge(
    where: Location, target_bytes: int, layout: Layout, schema: pa.Schema, group: list[DataFile]
) -> list[DataFile]:
    """Merge the rows of these files, in order, into as few files as possible, on an executor."""
    files = [shaped(read_file(where, one.path), schema) for one in group]
    return list(write_files(layout.merged(files), where, target_bytes * 2, layout, in_order=True))
