"""`erase`: records with a tag removed from the log, from the server's disk and from tables; and a receipt.

    delete in all topics ─▶ purge the server's files ─▶ rewrite files of tables ─▶ receipt

Every step can be repeated: an erasure that was interrupted is run again. An archive that is running may have
read such records before they were deleted. The commit that rewrites a table repeats the positions of the
topics, so it conflicts with the archive's next commit, and the archive reads again. Files that the archive
wrote meanwhile are listed before and removed after.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import ORIGIN, Offsets, StreamOffset
from pyspark_topics.pipelines.archive import table_mistakes
from pyspark_topics.pipelines.context import Check, Context, Mistakes, Outcome, check_pattern, check_table
from pyspark_topics.pipelines.delta_table import Location, location
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import TARGET_BYTES, DataFile, read_file, write_files
from pyspark_topics.pipelines.progress import table_lines
from pyspark_topics.pipelines.table_schema import DAY, RESERVED, Layout
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import on_executors
from topics.client import Refused

# Records in the middle of being copied by a router turn up behind the first pass.
MAX_ROUNDS = 10
POLL_S = 0.2
# A server that restarts forgets a purge; then it is begun again.
MAX_PURGES = 3
# What no program can promise to have reached.
OUT_OF_REACH = (
    "backups and exports of the server or the tables",
    "what consumers have read and kept",
    "what was derived from them and lacks the tag, such as aggregates of a route and the state it keeps",
    "files that loads read, and their copies of lines that were added to one, until these are loaded",
    "rows staged by a writer that has not committed them; they are given up after an hour",
    "blocks that file system or device have freed and not overwritten",
)


# Columns whose values in a table's log say nothing of what is in a record.
_HARMLESS = frozenset(("topic", "epoch", "seq", "ts", DAY))
# An archive that commits often can be in the way of an erasure for a while.
MAX_ATTEMPTS = 20


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
        names = [
            name
            for name in batch.column("topic").unique().to_pylist()
            if (self.pattern is not None and re.fullmatch(self.pattern, name))
            or self.topics is None
            or name in self.topics
        ]
        meant = pc.is_in(batch.column("topic"), pa.array(names, pa.string()))
        return pc.and_(pc.fill_null(found, False), meant)


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
        lying = lake.location.files(".parquet")
        lake.refresh()
        files = lake.files()
        told = columns_in_log(files, lake.partition_by)
        work = partial(strip_file, lake.location, Layout(lake.partition_by), tagged)
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
        lake.location.remove(left)
        records = sum(one.records for one in stripped)
        more = bool(set(lake.columns.names) - RESERVED - set(told))
        return Erased(
            lake.path, records, len(stripped), len(left), lake.records.version(), sorted(told), more
        )
    raise PipelineFailed(f"others kept committing to {lake.path}: stop them, and run this again")


def columns_in_log(files: Iterable[DataFile], partition_by: Iterable[str]) -> set[str]:
    """Return columns whose values are in the log: of partitions, and of columns that files cluster by."""
    return {*partition_by, *(name for one in files for name in one.low)} - _HARMLESS


def strip_file(where: Location, layout: Layout, tagged: Tagged, one: DataFile) -> Stripped | None:
    """Rewrite one file without the records, on an executor; None if the file has none of them."""
    looked = read_file(where, one.path, ["topic", "tag"])
    count = sum(pc.sum(tagged.mask(batch)).as_py() or 0 for batch in looked)
    if not count:
        return None
    return Stripped(
        one, count, list(write_files(_others(where, one.path, tagged), where, TARGET_BYTES * 2, layout))
    )


def _others(where: Location, name: str, tagged: Tagged) -> Iterator[pa.RecordBatch]:
    for batch in read_file(where, name):
        kept = batch.filter(pc.invert(tagged.mask(batch)))
        if kept.num_rows:
            yield kept


@dataclass
class LogErasure:
    """The log's part: deleted in every topic it may be in, then purged from the server's disk."""

    settings: "Erase"
    context: Context
    client: TopicsClient
    # Topics that are meant, whether they are still there or not.
    scope: frozenset[str] = frozenset()
    deleted: dict[str, int] = field(default_factory=dict)
    # Copies without the tag, by which they could be found.
    tagless: list[str] = field(default_factory=list)
    keeps_arriving: bool = False

    def choose(self) -> list[str]:
        """Return the chosen topics that exist: the named ones, or all, and those that routers copy to."""
        known = set(self.client.topic_names())
        pattern = ".*" if self.settings.pattern is None else self.settings.pattern
        reached = set(self.settings.topics) or {name for name in known if re.fullmatch(pattern, name)}
        routers = list(self.client.routers())
        while found := {one["dest"] for one in routers if one["source"] in reached} - reached:
            reached |= found
        self.scope = frozenset(reached)
        self.tagless = [
            f'router "{one["router"]}" copies {one["source"]} to {one["dest"]} without tags'
            for one in routers
            if one["source"] in reached and not one["preserve_tag"]
        ]
        return sorted(reached & known)

    def delete(self, topics: list[str]) -> None:
        """Delete until nothing is left to delete."""
        self.deleted = dict.fromkeys(topics, 0)
        for _ in range(MAX_ROUNDS):
            before = sum(self.deleted.values())
            for topic in topics:
                try:
                    count: int = self.client.delete_tagged(topic, self.settings.tag)["deleted"]
                except Refused as refusal:
                    if refusal.code != "topic_not_found":
                        raise
                    continue  # gone meanwhile, and everything in it
                if count:
                    self.deleted[topic] += count
                    self.context.progress.advance(count)
            if sum(self.deleted.values()) == before:
                return
        self.keeps_arriving = True

    def purge(self, topics: list[str]) -> dict[str, Any]:
        """Returns once the disk holds none of it; readers that have files open are waited for."""
        for _ in range(MAX_PURGES):
            state = self.client.start_purge(topics)
            try:
                while state["state"] not in ("done", "failed"):
                    if self.context.stop.wait(POLL_S):
                        raise PipelineFailed("stopped before the purge was done: run this again")
                    held = state["files_held"]
                    note = f"readers or backups hold {held} files" if held else f"purging: {state['phase']}"
                    self.context.progress.say("running", note)
                    state = self.client.purge(state["purge"])
            except Refused as refusal:
                if refusal.code != "not_found":
                    raise
                continue
            if state["state"] == "failed":
                raise PipelineFailed(
                    f"the server could not purge its files: {state['error']}; run this again"
                )
            return state
        raise PipelineFailed("the server keeps restarting in the middle of the purge: run this again")


class Erase(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "erase"
    follows: ClassVar[bool] = False

    # A tag, or the beginning of tags: `user:7`, `user:7:*`.
    tag: str
    # Without either: all topics. Where routers copy them to is always included.
    topics: list[str] = []
    pattern: str | None = None
    # Where tables of archives are.
    tables: list[str] = []

    def __post_init__(self) -> None:
        if not self.tag.strip("* "):
            raise ValueError("tag has to say whose records are meant: a tag, or the beginning of tags and *")
        if self.topics and self.pattern is not None:
            raise ValueError("give either topics or pattern, not both; without either it is all topics")
        check_pattern(self.pattern)
        for table in self.tables:
            check_table(table)

    def mistakes(self, check: Check) -> Mistakes:
        for table in self.tables:
            yield from table_mistakes("tables", table, check)

    def run(self, context: Context) -> Outcome:
        started = datetime.now(UTC)
        for table in self.tables:
            location(table, context.storage).refuse_unsafe()
        lakes = [Lake.existing(table, context.storage) for table in self.tables]
        with context.server.client() as client:
            log = LogErasure(self, context, client)
            topics = log.choose()
            missing = [name for name in self.topics if name not in topics]
            if missing and not lakes:  # one that is gone from the server may still be in a table
                raise PipelineFailed(f'there is no topic "{missing[0]}"')
            context.progress.say("running", "deleting")
            log.delete(topics)
            purge = log.purge(topics)
            starts = _starts(client, topics)
            context.progress.say("running", "rewriting tables")
            erased = [self._erase_table(context, lake, starts, log) for lake in lakes]
        logs = [line for lake, one in zip(lakes, erased, strict=True) for line in _kept_by_log(lake, one)]
        counts = ("files_rewritten", "records", "segment_bytes", "journal_bytes")
        receipt = {
            "tag": self.tag,
            "server": context.server.url,
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "topics": log.deleted,
            "purge": {name: purge[name] for name in counts},
            "tables": [asdict(one) for one in erased],
            "keeps_arriving": log.keeps_arriving,
            "out_of_reach": [*log.tagless, *logs, *OUT_OF_REACH],
        }
        path = context.state / f"receipt-{started:%Y%m%dT%H%M%S}.json"
        path.write_text(json.dumps(receipt, indent=2) + "\n")
        lines = (*_shown(receipt), f"receipt: {path}")
        return Outcome(not log.keeps_arriving, lines, {**receipt, "receipt": str(path)})

    def _erase_table(self, context: Context, lake: Lake, starts: Offsets, log: LogErasure) -> Erased:
        everywhere = not self.topics and self.pattern is None
        # With all topics those are meant, too, that are in the lake only.
        tagged = Tagged(self.tag, None if everywhere else log.scope, self.pattern)
        # An archive may be at its first records of a topic, and the table not know of it yet.
        concerned = {t: at for t, at in starts.items() if log.deleted[t] or lake.position(t) is not None}
        erased = erase_table(context.spark, lake, tagged, concerned)
        context.progress.advance(erased.records)
        return erased


def _starts(client: TopicsClient, topics: list[str]) -> Offsets:
    """Return the origins of topics, for tables that have no position for them."""
    found = {}
    for topic in topics:
        try:
            found[topic] = StreamOffset(ORIGIN, client.topic(topic)["epoch"])
        except Refused:
            continue  # gone meanwhile
    return found


def _kept_by_log(lake: Lake, erased: Erased) -> Iterator[str]:
    """Writers and streams that are behind need the log of a table, so it is left to its retention."""
    kept = [f"values of {', '.join(erased.columns_in_log)}"] if erased.columns_in_log else []
    if erased.maybe_more_in_log:
        kept.append("the smallest and largest values of any column that it was ever clustered by")
    if kept:
        yield (
            f"the log of {lake.path}, which keeps {' and '.join(kept)}, also of files that were removed, "
            f"until a commit tidies it after its retention ({lake.log_retention})"
        )


def _shown(receipt: dict[str, Any]) -> Iterator[str]:
    purge = receipt["purge"]
    rows: list[list[object]] = [
        [f"topic {topic}", count, "deleted"] for topic, count in receipt["topics"].items() if count
    ]
    rows.append(["server's disk", purge["records"], f"purged, {purge['files_rewritten']} files written anew"])
    rows += [
        [
            f"table {one['table']}",
            one["records"],
            f"{one['files_rewritten']} files written anew, {one['files_removed']} removed",
        ]
        for one in receipt["tables"]
    ]
    yield from table_lines(("where", "records", "what"), rows, f"erased: {receipt['tag']}")
    if receipt["keeps_arriving"]:
        yield "records with this tag keep arriving: stop those who write them, and run this again"
    yield "not reached:"
    yield from (f"  - {one}" for one in receipt["out_of_reach"])
