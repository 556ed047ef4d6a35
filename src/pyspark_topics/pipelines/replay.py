"""`replay`: lake → topic, by seq or time, at a given rate, from where it stopped.

    driver:     the wanted seqs → steps → a few tasks at a time → commits in order, paced and noted
    executors:  the files of a step → its records, ordered → a stage

What the lake knows to be lost in that range is announced in the topic, as records like those of a route.
"""

import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.loss import as_rows, as_text
from pyspark_topics.options import WriteOptions, parse_timestamp
from pyspark_topics.pipelines.archive import archives_into, table_mistakes
from pyspark_topics.pipelines.context import Check, Context, Mistakes, Outcome, check_name, check_table
from pyspark_topics.pipelines.delta_table import is_table, location
from pyspark_topics.pipelines.lake import Gap, Lake, is_archived
from pyspark_topics.pipelines.parquet import DataFile, TableRange, in_time, may_hold
from pyspark_topics.pipelines.state import SteppedJob
from pyspark_topics.rows import with_event_ts
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import on_executors
from pyspark_topics.writer import Staged, send

# Seqs of one step. A step is one commit, so this also bounds what a reader sees appear at once.
STEP_SEQS = 100_000
# Bytes of files that make a step: unpacked, they are several times as many, and a commit has its limit.
STEP_BYTES = 32 * 1024 * 1024
_COLUMNS = ("data", "tag", "node", "meta")


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "replay"
    follows: ClassVar[bool] = False

    # Where an archive's table is, and which of its topics.
    table: str
    topic: str
    into: str
    # One life of the topic; the newest that was archived, unless given.
    epoch: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    # Unix milliseconds or ISO 8601: from the first record of that time, up to the last before.
    since: str | int | None = None
    until: str | int | None = None
    # Records a second; 0 for as fast as it goes.
    rate: float = 0.0

    def __post_init__(self) -> None:
        check_table(self.table)
        check_name(self.into)
        for name in ("since", "until"):
            value = getattr(self, name)
            try:
                _ms(value)
            except ValueError as error:
                raise ValueError(f'{name} is "{value}", but {error}') from None
        if self.from_seq is not None and self.to_seq is not None and self.to_seq < self.from_seq:
            raise ValueError(
                f"to_seq is {self.to_seq}, below from_seq, {self.from_seq}: there is nothing to replay"
            )
        since, until = _ms(self.since), _ms(self.until)
        if since is not None and until is not None and until <= since:
            raise ValueError("until is not behind since: there is nothing to replay")
        if self.rate < 0:
            raise ValueError("rate has to be 0 or more")

    def mistakes(self, check: Check) -> Mistakes:
        mistakes = list(table_mistakes("table", self.table, check))
        yield from mistakes
        if not mistakes and not self._will_be_archived(check):
            yield "topic", f'{self.table} holds nothing of topic "{self.topic}"'

    def _will_be_archived(self, check: Check) -> bool:
        """Return whether the table has the topic, now or after an archive of these pipelines has run."""
        where = location(self.table, check.storage)
        return any(
            self.topic in archive.topics or re.fullmatch(archive.pattern or "", self.topic)
            for archive in archives_into(self.table, check)
        ) or (is_table(where) and is_archived(where, self.topic))

    def run(self, context: Context) -> Outcome:
        lake = Lake.existing(self.table, context.storage)
        job = self._job(context, lake)
        if job is None or job.finished:
            return Outcome(lines=("nothing to replay",), facts={"records": 0})
        with context.server.client() as client:
            records = _Replayer(self, context, client, lake, job).run()
        finished = job.at >= job.about["to_seq"]
        how = "done" if finished else f"stopped at seq {job.at}"
        line = f"replayed {records:,} records of {self.topic} into {self.into}: {how}"
        return Outcome(lines=(line,), facts={"records": records, "at": job.at, "finished": finished})

    def _job(self, context: Context, lake: Lake) -> SteppedJob | None:
        """The range is settled when a replay begins: what is archived later is for another one."""
        # A replay at another rate is still the same one.
        wanted = {key: value for key, value in msgspec.to_builtins(self).items() if key != "rate"}
        path = context.state / "replay.json"
        known = SteppedJob.read(path)
        if known is not None and known.about["settings"] == wanted:
            return known
        ends = self._ends(lake)
        if ends is None:
            return None
        epoch, first, last = ends
        job = SteppedJob.open(path, {"settings": wanted, "epoch": epoch, "to_seq": last})
        job.note(step=0, at=first - 1)
        return job

    def _ends(self, lake: Lake) -> tuple[int, int, int] | None:
        newest = lake.position(self.topic)
        if newest is None:
            raise PipelineFailed(f'{lake.path} holds nothing of topic "{self.topic}"')
        epoch = newest.epoch if self.epoch is None else self.epoch
        last = lake.archived(self.topic, epoch)
        if last is None:
            raise PipelineFailed(f'{lake.path} holds nothing of epoch {epoch} of "{self.topic}"')
        if self.to_seq is not None:
            last = min(last, self.to_seq)
        first = max(self.from_seq or 0, 0)
        return (epoch, first, last) if first <= last else None


@dataclass
class _Replayer:
    settings: Replay
    context: Context
    client: TopicsClient
    lake: Lake
    job: SteppedJob

    def run(self) -> int:
        job = self.job
        context, pace = self.context, Pace(self.settings.rate, self.context.stop.wait)
        context.progress.say("running")
        done = 0
        while job.at < job.about["to_seq"] and not context.stop.is_set():
            steps = self._steps()
            options = WriteOptions(context.server, self.settings.into)
            times = _ms(self.settings.since), _ms(self.settings.until)
            stages = on_executors(context.spark, partial(stage_step, options, times), steps)
            for step, staged in zip(steps, stages, strict=True):
                pace.pay(staged.records)
                if context.stop.is_set():
                    break
                self._commit(step, staged)
                done += staged.records
                context.progress.advance(staged.records, lag=job.about["to_seq"] - job.at)
        if job.at >= job.about["to_seq"]:
            job.finish()
        return done

    # --- steps ------------------------------------------------------------------------------------------

    def _steps(self) -> list[TableRange]:
        """The next few: as many as run side by side, of a second's worth each if there is a rate."""
        files, job = self._files(), self.job
        if not job.plan:
            job.settle(self._ends_of_steps(files))
        firsts = [job.at + 1, *(end + 1 for end in job.plan)]
        return [self._step(files, *ends) for ends in zip(firsts, job.plan, strict=False)]

    def _ends_of_steps(self, files: list[DataFile]) -> list[int]:
        first, end = self.job.at + 1, self.job.about["to_seq"]
        size = _step_size(files, self.settings.rate)
        together = 1 if self.settings.rate else self.context.spark.sparkContext.defaultParallelism
        ends: list[int] = []
        while first <= end and len(ends) < together:
            last = min(first + size - 1, end)
            if not any(_may_hold(one, first, last) for one in files):
                # Nothing was archived here: pass over it in one go.
                last = min((one.low["seq"] - 1 for one in files if one.low["seq"] > last), default=end)
            ends.append(last)
            first = last + 1
        return ends

    def _files(self) -> list[DataFile]:
        first, last = self.job.at + 1, self.job.about["to_seq"]
        wanted = (self.settings.topic, self.job.about["epoch"], first, last)
        return [one for one in self.lake.files() if may_hold(one, *wanted)]

    def _step(self, files: list[DataFile], first: int, last: int) -> TableRange:
        names = tuple(one.path for one in files if _may_hold(one, first, last))
        epoch = self.job.about["epoch"]
        return TableRange(self.lake.location, names, self.settings.topic, epoch, first, last)

    def _commit(self, step: TableRange, staged: Staged) -> None:
        texts = [as_text(gap.topic, gap.gap_from, gap.gap_to, gap.reason) for gap in self._gaps(step)]
        if texts:
            staged.put(self.client, "tombstones", [as_rows(texts)], self.settings.into)
        self.job.commit(self.client, [staged], step.last, self.context.committed)

    def _gaps(self, step: TableRange) -> list[Gap]:
        """Return the gaps that begin in this step. Loss has no time, so a replay by time includes all."""
        mine = (gap for gap in self.lake.gaps() if (gap.topic, gap.epoch) == (step.topic, step.epoch))
        begins = self.settings.from_seq or 0
        return [
            gap
            for gap in mine
            if step.first <= max(gap.gap_from, begins) <= step.last
            and (gap.gap_to is None or gap.gap_to >= begins)
        ]


def _step_size(files: list[DataFile], rate: float) -> int:
    """Seqs of a step: few enough for one commit, and a second's worth where there is a rate."""
    rows, size = sum(one.rows for one in files), sum(one.size for one in files)
    fitting = STEP_BYTES * rows // size if size else STEP_SEQS
    return max(1, min(STEP_SEQS, fitting, int(rate) if rate else STEP_SEQS))


def _may_hold(one: DataFile, first: int, last: int) -> bool:
    return bool(one.low["seq"] <= last and one.high["seq"] >= first)


def stage_step(options: WriteOptions, times: tuple[int | None, int | None], step: TableRange) -> Staged:
    """Send the records of a step, in order, to a stage of this attempt, on an executor."""
    table = step.read(["seq", "ts", *_COLUMNS], in_time(*times))
    # Each record keeps the time that it had.
    meta = with_event_ts(table["meta"].combine_chunks(), table["ts"].combine_chunks(), keep=True)
    table = table.set_column(table.schema.get_field_index("meta"), "meta", meta).select(_COLUMNS)
    return send(options, Staged(uuid.uuid4().hex), table.to_batches())


def _ms(moment: str | int | None) -> int | None:
    return None if moment is None else parse_timestamp(str(moment))


@dataclass
class Pace:
    """At most so many records a second, on average since the start."""

    rate: float
    wait: Callable[[float], Any]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._due = self.clock()

    def pay(self, records: int) -> None:
        """Wait until the records before these have had their time; returns early when told to stop."""
        if self.rate <= 0:
            return
        now = self.clock()
        if self._due > now:
            self.wait(self._due - now)
        self._due = max(self._due, now) + records / self.rate
