"""Files of the lake written again by executors: small ones merged, and records with a tag left out.

Files of like size are merged eight at a time, so a record is written again only a few times on its way to a
file of the target size, however small the commits are it came in with.

    erasure:  list what lies there ─▶ find and rewrite ─▶ one commit ─▶ remove what it left behind

An archive that is running may have read such records before they were deleted. The commit repeats where the
topics stand, so whatever it is about to commit collides and has to be read again; and the files it wrote
were listed, and go.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import Offsets
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import TARGET_BYTES, DataFile, read_file, write_files
from pyspark_topics.pipelines.tables.commits import Collision
from pyspark_topics.pipelines.tables.layout import Layout, shaped
from pyspark_topics.pipelines.tables.places import Place
from pyspark_topics.pipelines.tables.typed import DAY, RESERVED
from pyspark_topics.session import on_executors

MERGED_AT_ONCE = 8
# Files that are no longer part of the table stay for readers that still have them in their plans.
KEEP_REMOVED_HOURS = 168
VACUUM_EVERY_S = 3600.0
# Columns whose values in a table's log say nothing of what is in a record.
_HARMLESS = frozenset(("topic", "epoch", "seq", "ts", DAY))
# An archive that commits often can be in the way of an erasure for a while.
MAX_ATTEMPTS = 20


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
            work = partial(merge, self.lake.place, self.target_bytes, layout, self.lake.columns)
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
    where: Place, target_bytes: int, layout: Layout, schema: pa.Schema, group: list[DataFile]
) -> list[DataFile]:
    """What an executor does: the rows of these files, in order, into as few files as may be."""
    files = [shaped(read_file(where, one.path), schema) for one in group]
    return list(write_files(layout.merged(files), where, target_bytes * 2, layout, in_order=True))


# --- erasing --------------------------------------------------------------------------------------------


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
    # Columns whose values the table's log keeps, also those of files that were removed.
    columns_in_log: list[str]
    # Whether it may keep those of others: where files were written anew, what they clustered by is not told.
    maybe_more_in_log: bool


@dataclass(frozen=True)
class Stripped:
    """Files in place of one that held such records, and how many those were."""

    old: DataFile
    records: int
    new: list[DataFile]


def erase_table(spark: SparkSession, lake: Lake, tagged: Tagged, standing: Offsets) -> Erased:
    """`standing` names the topics that no writer may move without having heard of this."""
    for _ in range(MAX_ATTEMPTS):
        lying = lake.place.files(".parquet")
        lake.refresh()
        files = lake.files()
        told = columns_in_log(files, lake.partition_by)
        work = partial(strip_file, lake.place, Layout(lake.partition_by), tagged)
        found = on_executors(spark, work, files)
        stripped = [one for one in found if one is not None]
        new = [file for one in stripped for file in one.new]
        at = {topic: lake.position(topic) or start for topic, start in standing.items()}
        try:
            lake.replace([one.old for one in stripped], new, changed=True, standing=at)
        except PipelineFailed:
            lake.discard(new)
            continue
        left = lying - {one.path for one in lake.files()}
        lake.place.remove(left)
        records = sum(one.records for one in stripped)
        more = bool(set(lake.columns.names) - RESERVED - set(told))
        return Erased(
            lake.path, records, len(stripped), len(left), lake.records.version(), sorted(told), more
        )
    raise PipelineFailed(f"others kept committing to {lake.path}: stop them, and run this again")


def columns_in_log(files: Iterable[DataFile], partition_by: Iterable[str]) -> set[str]:
    """Those that tell of what is in records: of partitions, and of columns that files cluster by."""
    return {*partition_by, *(name for one in files for name in one.low)} - _HARMLESS


def strip_file(where: Place, layout: Layout, tagged: Tagged, one: DataFile) -> Stripped | None:
    """What an executor does: None for a file that may stay as it is."""
    looked = read_file(where, one.path, ["topic", "tag"])
    count = sum(pc.sum(tagged.mask(batch)).as_py() or 0 for batch in looked)
    if not count:
        return None
    return Stripped(
        one, count, list(write_files(_others(where, one.path, tagged), where, TARGET_BYTES * 2, layout))
    )


def _others(where: Place, name: str, tagged: Tagged) -> Iterator[pa.RecordBatch]:
    for batch in read_file(where, name):
        kept = batch.filter(pc.invert(tagged.mask(batch)))
        if kept.num_rows:
            yield kept
