"""`audit`: a table and the log together account for every seq that a topic gave out.

    table: positions, gaps, seqs of all files  ─┐
    log:   seqs that can be read               ─┼▶  account of every epoch of every topic
    ledger, read last: why the others cannot   ─┘

Every seq is present, deleted, announced as lost, or unexplained. Writers may run meanwhile: a record that
leaves the log while it is read is in the ledger when that is read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.loss import RECREATED, TOPIC_DELETED
from pyspark_topics.offsets import ORIGIN, Range, SeqSet, StreamOffset, TopicView
from pyspark_topics.options import SourceOptions, parse_read, source_options
from pyspark_topics.partition_reader import read_ranges, scan_head
from pyspark_topics.partitions import ScanFilter, SeqRange, TaskPartition, planned
from pyspark_topics.pipelines.archive import table_mistakes
from pyspark_topics.pipelines.context import Check, Context, Mistakes, Outcome, check_table, check_topics
from pyspark_topics.pipelines.delta_table import Location
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import read_file
from pyspark_topics.pipelines.progress import table_lines
from pyspark_topics.rows import ReadSchema
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import on_executors
from pyspark_topics.subscription import subscribed

_SCHEMA = ReadSchema(("seq", "kind", "gap_from", "gap_to", "reason"))
_FILE_COLUMNS = ["topic", "epoch", "seq"]


DELETED = "deleted"
# Of a life that has ended: all that is left to say of why.
ANNOUNCED = "announced"
# So many unexplained ranges are listed; the count is always complete.
LISTED = 20


def runs_of(seqs: npt.NDArray[np.int64]) -> list[Range]:
    """Stretches without a gap; seqs in any order, each counted once."""
    if not len(seqs):
        return []
    ordered = np.unique(seqs)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.concatenate(([0], breaks + 1))]
    lasts = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


@dataclass(frozen=True)
class ArchivedSeqs:
    """The seqs of one epoch in the table, and the position of the archive."""

    records: SeqSet = field(default_factory=SeqSet)
    rows: int = 0
    gaps: SeqSet = field(default_factory=SeqSet)
    reached: int = 0


@dataclass(frozen=True)
class LoggedSeqs:
    """The seqs of the current epoch at the server. `missing` is its ledger: ranges by kind."""

    first: int
    head: int
    live: SeqSet
    missing: Mapping[str, SeqSet]


@dataclass(frozen=True)
class Account:
    topic: str
    epoch: int
    # False for a life that has ended: only the lake knows of it.
    is_live: bool
    seqs: int
    archived: int
    live: int
    archived_and_live: int
    deleted: int
    lost: dict[str, int]
    # What is wrong, as sentences about ranges.
    unexplained: dict[str, SeqSet]
    repeated_rows: int

    @property
    def ok(self) -> bool:
        return not self.unexplained and not self.repeated_rows

    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FACTS} | {
            "unexplained": {
                why: {"seqs": found.count, "ranges": [list(one) for one in found.ranges[:LISTED]]}
                for why, found in self.unexplained.items()
            },
            "repeated_rows": self.repeated_rows,
        }


_FACTS = (
    *("topic", "epoch", "is_live", "ok", "seqs", "archived", "live", "archived_and_live", "deleted"),
    "lost",
)
NOT_THERE = "neither in the log nor in the archive, and the ledger does not say why"
PASSED = "passed by the archive, which has neither the record nor a gap"
INVENTED = "in the archive, but never given out by this log"


def account(topic: str, epoch: int, archived: ArchivedSeqs, logged: LoggedSeqs | None) -> Account:
    """`logged` is None for a life that has ended."""
    if logged is None:
        whole, live, problems = SeqSet.of([(1, archived.reached)]) | archived.records, SeqSet(), {}
        # With a topic goes its ledger; what the archive did not get was deleted with it at the latest.
        gone = {ANNOUNCED: archived.gaps, DELETED: whole - archived.records - archived.gaps}
    else:
        whole, live = SeqSet.of([(logged.first, logged.head)]), logged.live
        gone = {kind: seqs & whole for kind, seqs in logged.missing.items()}
        problems = _unexplained(whole, archived, logged, gone)
    present = archived.records | live
    deleted = gone.pop(DELETED, SeqSet()) - present
    lost = {kind: seqs - present for kind, seqs in gone.items()}
    return Account(
        topic,
        epoch,
        logged is not None,
        (whole | _union(lost.values())).count,
        archived.records.count,
        live.count,
        (archived.records & live).count,
        deleted.count,
        {kind: seqs.count for kind, seqs in lost.items() if seqs},
        {why: seqs for why, seqs in problems.items() if seqs},
        archived.rows - archived.records.count,
    )


def _unexplained(
    whole: SeqSet, archived: ArchivedSeqs, logged: LoggedSeqs, gone: Mapping[str, SeqSet]
) -> dict[str, SeqSet]:
    passed = SeqSet.of([(logged.first, min(archived.reached, logged.head))])
    return {
        NOT_THERE: whole - archived.records - logged.live - _union(gone.values()),
        PASSED: passed - archived.records - archived.gaps - gone.get(DELETED, SeqSet()),
        INVENTED: archived.records - whole,
    }


def _union(sets: Iterable[SeqSet]) -> SeqSet:
    return SeqSet.of(one for seqs in sets for one in seqs.ranges)


def by_kind(ranges: Iterable[tuple[int, int, str]]) -> dict[str, SeqSet]:
    found: dict[str, list[Range]] = {}
    for first, last, kind in ranges:
        found.setdefault(kind, []).append((first, last))
    return {kind: SeqSet.of(found[kind]) for kind in found}


Life = tuple[str, int]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "audit"
    follows: ClassVar[bool] = False

    # Without either: all topics of the table.
    topics: list[str] = []
    pattern: str | None = None
    # Where an archive's table is; without it, the log is held against its ledger alone.
    table: str | None = None

    def __post_init__(self) -> None:
        if self.topics or self.pattern is not None or self.table is None:
            check_topics(self.topics, self.pattern)
        check_table(self.table)

    def mistakes(self, check: Check) -> Mistakes:
        if self.table is not None:
            yield from table_mistakes("table", self.table, check)

    def run(self, context: Context) -> Outcome:
        lake = None if self.table is None else Lake.existing(self.table, context.storage)
        with context.server.client() as client:
            accounts = _Auditor(self, context, client, lake).run()
        if not accounts:
            # To say that nothing is missing would be true, and would hide a mistyped pattern.
            raise PipelineFailed("there is nothing to audit: no topic matches")
        ok = all(one.ok for one in accounts)
        facts = {"ok": ok, "topics": [one.facts() for one in accounts]}
        return Outcome(ok, tuple(report(accounts)), facts)


@dataclass
class _Auditor:
    settings: Audit
    context: Context
    client: TopicsClient
    lake: Lake | None

    def run(self) -> list[Account]:
        archived = self._archived()
        self.context.progress.say("running")
        views = self._views({topic for topic, _ in archived})
        self.context.progress.expect(sum(view.head - view.floor + 1 for view in views.values()))
        accounts = []
        for name, view in sorted(views.items()):
            logged = self._logged(view)
            life = (name, view.epoch)
            accounts.append(account(*life, archived.pop(life, ArchivedSeqs()), logged))
            self.context.progress.advance(logged.live.count)
        ended = [account(*life, found, None) for life, found in archived.items() if self._wants(life[0])]
        return sorted([*accounts, *ended], key=lambda one: (one.topic, one.epoch))

    # --- the lake ---------------------------------------------------------------------------------------

    def _archived(self) -> dict[Life, ArchivedSeqs]:
        lake = self.lake
        if lake is None:
            return {}
        rows: Counter[Life] = Counter()
        ranges: dict[Life, list[Range]] = defaultdict(list)
        for life, count, found in self._count(lake):
            rows[life] += count
            ranges[life] += found
        # Lives that were archived without a record to show for it.
        at = {name: lake.position(name) for name in self.settings.topics}
        positions = {(name, one.epoch) for name, one in at.items() if one is not None}
        gaps: dict[Life, list[Range]] = defaultdict(list)
        for gap in lake.gaps():
            # One without an end belongs to a life that is over; how far that came is not known.
            gaps[gap.topic, gap.epoch].append((gap.gap_from, gap.gap_to or 0))
        return {
            life: ArchivedSeqs(
                SeqSet.of(ranges[life]), rows[life], SeqSet.of(gaps[life]), lake.archived(*life) or 0
            )
            for life in rows.keys() | gaps.keys() | positions
        }

    def _count(self, lake: Lake) -> Iterator[tuple[Life, int, list[Range]]]:
        names = [one.path for one in lake.files()]
        if names:  # or else Spark would be started for nothing
            spark = self.context.spark
            most_tasks = spark.sparkContext.defaultParallelism * 4
            yield from chain.from_iterable(
                on_executors(spark, partial(count_file, lake.location), names, most_tasks)
            )

    # --- the log ----------------------------------------------------------------------------------------

    def _views(self, archived: set[str]) -> dict[str, TopicView]:
        settings = self.settings
        names = settings.topics if settings.topics or settings.pattern else sorted(archived)
        if not names and settings.pattern is None:
            return {}
        found, missing = subscribed(self.client, self._options(names))
        for name in missing:
            if name not in archived:
                raise PipelineFailed(f'there is no topic "{name}", neither at the server nor in the table')
        return found

    def _wants(self, topic: str) -> bool:
        settings = self.settings
        if settings.pattern is not None:
            return re.fullmatch(settings.pattern, topic) is not None
        return not settings.topics or topic in settings.topics

    def _options(self, names: list[str]) -> SourceOptions:
        chosen = source_options(self.context.server, names, None if names else self.settings.pattern)
        return parse_read(chosen, streaming=False)

    def _logged(self, view: TopicView) -> LoggedSeqs:
        head = scan_head(self.client, view.name)
        live = self._live(view)
        ledger = self.client.ledger(view.name)
        if ledger["epoch"] != view.epoch or head["epoch"] != view.epoch:
            raise _replaced(view.name)
        missing = by_kind((one["from"], one["to"], one["kind"]) for one in ledger["ranges"])
        return LoggedSeqs(head["seq_base"], view.head, live, missing)

    def _live(self, view: TopicView) -> SeqSet:
        whole = SeqRange(
            view.name, StreamOffset(ORIGIN, view.epoch), view.head, view.epoch, view.head - view.floor + 1
        )
        options = self._options([view.name])
        with planned(self.client, [whole] if view.head else [], options) as tasks:
            found = on_executors(self.context.spark, partial(read_task, options), tasks) if tasks else []
        return SeqSet.of(one for ranges in found for one in ranges)


def _replaced(topic: str) -> PipelineFailed:
    return PipelineFailed(f'topic "{topic}" was deleted while it was audited: audit again')


# --- what executors do ----------------------------------------------------------------------------------


def count_file(where: Location, name: str) -> list[tuple[Life, int, list[Range]]]:
    """Return how many rows of which seqs a file has, by life."""
    batches = read_file(where, name, _FILE_COLUMNS)
    return [(life, len(seqs), runs_of(seqs)) for batch in batches for life, seqs in _by_life(batch)]


def _by_life(batch: pa.RecordBatch) -> Iterator[tuple[Life, npt.NDArray[np.int64]]]:
    for topic in batch.column("topic").unique().to_pylist():
        of_topic = batch.filter(pc.equal(batch.column("topic"), topic))
        for epoch in of_topic.column("epoch").unique().to_pylist():
            of_life = of_topic.filter(pc.equal(of_topic.column("epoch"), epoch))
            yield (topic, epoch), of_life.column("seq").to_numpy()


def read_task(options: SourceOptions, partition: TaskPartition) -> list[Range]:
    """The seqs that can be read, as ranges. What is announced as lost the ledger will say, too."""
    ranges: list[Range] = []
    for wanted, batch in read_ranges(options, _SCHEMA, ScanFilter(), partition):
        reason = batch.column("reason")[0].as_py() if batch.num_rows == 1 else None
        if reason in (RECREATED, TOPIC_DELETED):
            raise _replaced(wanted.topic)
        seqs = batch.column("seq").drop_null().to_numpy()
        ranges += runs_of(seqs.astype(np.int64, copy=False))
    return list(SeqSet.of(ranges).ranges)


# --- for people -----------------------------------------------------------------------------------------


def report(accounts: list[Account]) -> Iterator[str]:
    reasons = sorted({reason for one in accounts for reason in one.lost})
    headings = ["topic", "epoch", "seqs", "archived", "live", "in both", "deleted"]
    headings += [f"lost ({reason})" for reason in reasons]
    yield from table_lines([*headings, "unexplained"], (_row(one, reasons) for one in accounts))
    for one in accounts:
        yield from _problems(one)
    yield (
        "every seq is accounted for" if all(one.ok for one in accounts) else "NOT every seq is accounted for"
    )


def _row(one: Account, reasons: list[str]) -> list[object]:
    ended = "" if one.is_live else " (ended)"
    unexplained = sum(seqs.count for seqs in one.unexplained.values())
    counts = (one.seqs, one.archived, one.live, one.archived_and_live, one.deleted)
    return [one.topic + ended, str(one.epoch), *counts, *(one.lost.get(r, 0) for r in reasons), unexplained]


def _problems(one: Account) -> Iterable[str]:
    for why, found in one.unexplained.items():
        shown = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in found.ranges[:LISTED])
        more = "" if len(found.ranges) <= LISTED else f", and {len(found.ranges) - LISTED} more ranges"
        yield f"{one.topic}, epoch {one.epoch}: seqs {shown}{more} are {why}"
    if one.repeated_rows:
        yield f"{one.topic}, epoch {one.epoch}: {one.repeated_rows} rows of the archive are there twice"
