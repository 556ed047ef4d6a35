"""`load`: Parquet, JSON or CSV files → a topic, each file once.

    driver:     files that are not loaded yet, one by one → partitions, a few at a time → commits, noted
    executors:  the rows of a partition → stages of a few hundred megabytes at most

Each file is read and noted by itself. It gives the same records whatever other files exist, and a broken file
stops no other one. A note has what identifies the file, so the same load can run again for new files. A load
that was interrupted is finished first, as it was planned.
"""

import glob
import hashlib
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.errors import PySparkException

from pyspark_topics.errors import BadRow, PipelineFailed
from pyspark_topics.options import WriteOptions
from pyspark_topics.pipelines.context import (
    Check,
    Context,
    Mistakes,
    Outcome,
    Pipeline,
    attempted,
    check_name,
    schema_mistakes,
)
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.files import (
    COPIES,
    FileFormat,
    kind_of,
    matching,
    none_matches,
    unreadable,
    way_out,
    why_broken,
    why_unreadable,
)
from pyspark_topics.pipelines.state import StatePath, SteppedJob, write_note
from pyspark_topics.rows import SinkRows
from pyspark_topics.servers import TopicsClient
from pyspark_topics.session import beside
from pyspark_topics.writer import Staged, stage_steps
from topics.client import Refused

# Input of one task; rows may be several times as large as JSON.
SPLIT_BYTES = 64 * 1024 * 1024
# Rows of one commit, as Arrow has them: well below what the server takes at once.
COMMIT_BYTES = 192 * 1024 * 1024
# So many files that cannot be loaded are named.
MOST_NAMED = 20
# Size and time of a file's last change.
Marks = list[int]
_SKIPPED = "skipped.json"
_BLOCK = 1 << 20


class Load(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "load"
    follows: ClassVar[bool] = False

    # Paths, with * and ** as in a shell.
    files: list[str]
    into: str
    # Told by the ending of the files, unless given.
    format: Literal["parquet", "json", "csv"] | None = None
    # Options for Spark's reader of that format.
    options: dict[str, str] = {}
    # Types of columns, like "id BIGINT, at TIMESTAMP"; without it, each file tells its own.
    schema: str | None = None
    # Expressions that make the columns of the sink: data, tag, node, meta. Without them, all columns together
    # are the record.
    select: list[str] = []
    # Whether lines that were added to a file that is loaded are loaded, too.
    grown: Literal["refuse", "continue"] = "refuse"

    def __post_init__(self) -> None:
        check_name(self.into)
        if not self.files:
            raise ValueError('files has to say what to load, like ["exports/*.csv"]')

    def mistakes(self, check: Check) -> Mistakes:
        readable: list[str] = []
        for pattern in self.files:
            matches = sorted(map(os.path.abspath, matching(pattern)))
            if not matches:
                yield "files", none_matches(pattern)
            refused = [why for why in map(unreadable, matches) if why is not None]
            if refused:
                more = f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else ""
                yield "files", refused[0] + more
            readable += [path for path in matches if unreadable(path) is None]
        if self.schema is not None:
            check.session()  # without which no schema can be read
        mistakes = schema_mistakes(self.schema)
        yield from mistakes
        if readable and not mistakes:
            spark = beside(check.session())

            def look() -> None:
                frame = self.file_format(readable[0]).frame(spark, readable[0])
                SinkRows.of(frame.schema, WriteOptions(check.server, self.into))

            yield from attempted("select" if self.select else "files", look)

    def run(self, context: Context) -> Outcome:
        notes = Loaded(context.state)
        notes.skip([path for path in context.skip if notes.knows(path, self.files)])
        again = [path for path in context.again if notes.knows(path, self.files)]
        notes.again(again, self._about(), context.run_id)
        with context.server.client() as client:
            run = _RunningLoad(self, context, client, notes)
            run.all_files()
        if not run.files:
            return Outcome(lines=("nothing to load: all files are loaded",), facts={"files": 0, "records": 0})
        line = f"loaded {run.records:,} records of {run.files:,} files into {self.into}"
        return Outcome(lines=(line,), facts={"files": run.files, "records": run.records})

    def file_format(self, path: str) -> FileFormat:
        kind = self.format or kind_of(path)
        return FileFormat(kind, self.options, self.schema, self.select, self.into)

    def _about(self) -> dict[str, Any]:
        # Sizes are part of it: a load that goes on with another version has to find the same steps.
        return {"into": self.into, "split_bytes": SPLIT_BYTES, "commit_bytes": COMMIT_BYTES}

    def due(self, notes: "Loaded", refused: list[str]) -> list[SteppedJob]:
        """Return the jobs for the files that exist; `refused` gets a message for each other file."""
        jobs = []
        for path in notes.find(self.files):
            last, why = notes.last(path), unreadable(path)
            if why is not None:
                refused.append(why)
            elif last is None:
                jobs.append(notes.new(path, self._about()))
            elif not last.finished or same(last):
                continue
            elif not (self.file_format(path).has_lines and grew(last)):
                refused.append(f"{path} was changed since it was loaded: put it back, {way_out(path)}")
            elif self.grown == "continue":
                jobs.append(notes.new(path, self._about(), last.about["marks"][0]))
            else:
                refused.append(
                    f'{path} grew since it was loaded: load what was added with grown = "continue", '
                    f"{way_out(path)}"
                )
        return jobs


def refuse_strangers(
    pipelines: Mapping[str, Pipeline], state: StatePath, named: Mapping[str, Iterable[str]]
) -> None:
    """`named` are files by option. Each is for the loads that know it, and one has to."""
    loads = {name: one for name, one in pipelines.items() if isinstance(one, Load)}
    notes = {name: Loaded(state / name) for name in loads} if any(named.values()) else {}
    for option, paths in named.items():
        for path in paths:
            if not any(notes[name].knows(path, one.files) for name, one in loads.items()):
                whose = f"of {', '.join(loads)}" if loads else "of a load, and none is run"
                raise PipelineFailed(f"{option} names {path}, which is no file {whose}")


@dataclass
class _RunningLoad:
    settings: Load
    context: Context
    client: TopicsClient
    notes: "Loaded"
    files: int = 0
    records: int = 0

    def all_files(self) -> None:
        """A file that cannot be loaded is named at the end, when the others are done."""
        self.notes.drop_copies()
        refused: list[str] = []
        jobs = [*self.notes.unfinished(), *self.settings.due(self.notes, refused)]
        if jobs:
            self.context.spark.sparkContext  # noqa: B018 - starts Spark, which is to be told as that
            self.context.progress.say("running")
        for job in jobs:
            if self.context.stop.is_set():
                return
            try:
                self._one(job)
            except PipelineFailed as failure:
                refused.append(str(failure))
        if refused:
            more = f" (and {len(refused) - MOST_NAMED:,} more)" if len(refused) > MOST_NAMED else ""
            raise PipelineFailed(". Also: ".join(refused[:MOST_NAMED]) + more)

    def _one(self, job: SteppedJob) -> None:
        path = job.about["file"]
        if not same(job):
            if job.begun:
                what = f"{path} was changed or removed while it was being loaded"
                raise PipelineFailed(f"{what}: put it back, {way_out(path)}")
            job = self.notes.renew(job)
        form = self.settings.file_format(path)
        try:
            records = self._load(job, form)
        except (PySparkException, Py4JJavaError, Refused, BadRow, PipelineFailed) as error:
            raise why_broken(form, self.context.spark, path, error) from error
        self.notes.drop_copies()
        self.files += 1
        self.records += records

    def _load(self, job: SteppedJob, form: FileFormat) -> int:
        """Commit the steps of a file in order, and return how many records they had."""
        context, records = self.context, 0
        steps = self._steps(job, form)
        total = steps.getNumPartitions()
        together = context.spark.sparkContext.defaultParallelism
        while job.at < total and not context.stop.is_set():
            chosen = list(range(job.at, min(job.at + together, total)))
            # A list for each partition, in their order, of its stages.
            found = context.spark.sparkContext.runJob(steps, lambda staged: [list(staged)], chosen)
            if not same(job):
                path = job.about["file"]
                raise PipelineFailed(f"{path} was changed while it was read: let it be finished first")
            job.settle([total])
            for number, staged in zip(chosen, found, strict=True):
                job.commit(self.client, staged, number + 1, context.committed)
                loaded = sum(one.records for one in staged)
                records += loaded
                # As if the rest had as many records as what is done: they have not been counted.
                context.progress.advance(loaded, lag=records * (total - job.at) // (number + 1))
        if job.at >= total:
            job.finish()
        return records

    def _steps(self, job: SteppedJob, form: FileFormat) -> RDD[Staged]:
        about = job.about
        spark = self.context.spark.newSession()
        # Splits must not depend on the machine: a load that goes on elsewhere has to find the same ones.
        spark.conf.set("spark.sql.files.minPartitionNum", "1")
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(about["split_bytes"]))
        if about.get("from_byte"):
            frame = form.tail(spark, about["file"], about["from_byte"], self.context.state)
        else:
            frame = form.frame(spark, about["file"])
        options = WriteOptions(self.context.server, self.settings.into)
        return stage_steps(frame, options, about["commit_bytes"])


# --- notes ------------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """The notes in the folder of a load."""

    state: StatePath
    jobs: list[SteppedJob] = field(init=False)
    skipped: set[str] = field(init=False)

    def __post_init__(self) -> None:
        found: list[StatePath] = list(self.state.glob("set-*.json"))
        read = (SteppedJob.read(path) for path in sorted(found, key=str))
        self.jobs = [job for job in read if job is not None]
        skipped = SteppedJob.read_json(self.state / _SKIPPED)
        self.skipped = set(skipped or ())

    # --- what the user says about files -----------------------------------------------------------------

    def skip(self, paths: Iterable[str]) -> None:
        """From now on, whatever happens to the file; what is committed of it stays."""
        if not self.skipped.issuperset(paths):
            self.skipped.update(paths)
            write_note(self.state / _SKIPPED, sorted(self.skipped))

    def again(self, paths: Iterable[str], about: dict[str, Any], run: str) -> None:
        """Take files as new, once in a run. A file that is already being taken again is continued."""
        for path in paths:
            if not os.path.isfile(path):
                raise PipelineFailed(f"--again names {path}, and there is no such file")
            why = why_unreadable(path)
            if why is not None:
                raise PipelineFailed(f"--again names {path}, and {why}")
            if not self._is_taken(path, run):
                self.new(path, {**about, "again": run})
            if path in self.skipped:
                self.skipped.discard(path)
                write_note(self.state / _SKIPPED, sorted(self.skipped))

    def _is_taken(self, path: str, run: str) -> bool:
        last = self.last(path)
        if last is None or "again" not in last.about:
            return False
        return last.about["again"] == run or (not last.finished and same(last))

    def knows(self, path: str, patterns: Iterable[str]) -> bool:
        """Return whether this load knows the file: it matches a pattern, or has a note."""
        if path in self.skipped or self.last(path) is not None:
            return True
        found = (name for pattern in patterns for name in glob.glob(pattern, recursive=True))
        return os.path.isfile(path) and path in map(os.path.abspath, found)

    # --- files --------------------------------------------------------------------------------------------

    def find(self, patterns: list[str]) -> dict[str, Marks]:
        """Files by absolute path, without those that are left out."""
        found: dict[str, Marks] = {}
        for pattern in patterns:
            matches = matching(pattern)
            if not matches and not any(fnmatch(path, os.path.abspath(pattern)) for path in self.skipped):
                raise PipelineFailed(none_matches(pattern))
            found.update((path, marks(path)) for path in map(os.path.abspath, matches))
        return {path: found[path] for path in sorted(found) if path not in self.skipped}

    def last(self, path: str) -> SteppedJob | None:
        """The newest note about a file."""
        return next((job for job in reversed(self.jobs) if path == job.about["file"]), None)

    def unfinished(self) -> list[SteppedJob]:
        """The newest note of each file, if it is not finished and the file is not left out."""
        newest = {job.about["file"]: job for job in self.jobs if job.about["file"] not in self.skipped}
        return [job for job in self.jobs if not job.finished and newest.get(job.about["file"]) is job]

    def new(self, path: str, about: dict[str, Any], from_byte: int = 0) -> SteppedJob:
        return self._note(self.state / f"set-{len(self.jobs):06}.json", path, about, from_byte)

    def renew(self, job: SteppedJob) -> SteppedJob:
        """The file was changed before anything of it was committed: what it was does not matter."""
        self.jobs.remove(job)
        about = {key: value for key, value in job.about.items() if key not in ("file", "marks", "digest")}
        return self._note(job.path, job.about["file"], about, about.pop("from_byte", 0))

    def _note(self, note: StatePath, path: str, about: dict[str, Any], from_byte: int) -> SteppedJob:
        known = {"file": path, "marks": marks(path), "digest": digest(path), **about}
        job = SteppedJob(note, uuid.uuid4().hex, known | ({"from_byte": from_byte} if from_byte else {}))
        job.note(step=0, at=0)
        self.jobs.append(job)
        return job

    # --- copies of lines that were added ------------------------------------------------------------------

    def drop_copies(self) -> None:
        """Remove copies of lines, without those of jobs that are not finished."""
        copies = self.state / COPIES
        if isinstance(copies, Path) and copies.is_dir():
            folder = location(str(copies))
            folder.remove(folder.files("") - {_copy_of(job) for job in self.unfinished()})


def _copy_of(job: SteppedJob) -> str:
    """The name of the copy of its lines; empty if it reads the file itself."""
    return Path(job.about["file"]).name if job.about.get("from_byte") else ""


def marks(path: str) -> Marks:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def same(job: SteppedJob) -> bool:
    """Return whether the file has the content that the job is about."""
    path, noted = job.about["file"], job.about["marks"]
    if not os.path.isfile(path):
        return False
    now = marks(path)
    return bool(noted == now or (noted[0] == now[0] and job.about["digest"] == digest(path)))


def grew(job: SteppedJob) -> bool:
    """Return whether whole lines were added since the file was loaded."""
    path, size = job.about["file"], job.about["marks"][0]
    if os.path.getsize(path) <= size or digest(path, size) != job.about["digest"]:
        return False
    with open(path, "rb") as file:
        file.seek(max(size - 1, 0))
        return size == 0 or b"\n" in file.read(2)


def digest(path: str, size: int | None = None) -> str:
    """Of a file as it is now, or of its first bytes."""
    found = hashlib.blake2b(digest_size=16)
    left = os.path.getsize(path) if size is None else size
    with open(path, "rb") as file:
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            found.update(block)
            left -= len(block)
    return found.hexdigest()
