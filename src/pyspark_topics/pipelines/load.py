"""`load`: Parquet, JSON or CSV files → a topic, each file once.

    driver:     files that are not loaded yet, one by one → partitions, a few at a time → commits in order, noted
    executors:  the rows of a partition → stages of a few hundred megabytes at most

Each file is read and noted by itself. It gives the same records whatever other files exist, and a broken file
stops no other one. A note has what identifies the file, so the same load can run again for new files. A load
that was interrupted is finished first, as it was planned.
"""

import glob
import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_topics.errors import BadRow, PipelineFailed
from pyspark_topics.options import WriteOptions
from pyspark_topics.pipelines.context import Context, Outcome, Pipeline, check_name
from pyspark_topics.pipelines.delta_table import place
from pyspark_topics.pipelines.files import (
    COPIES,
    FileFormat,
    matching,
    none_matches,
    unreadable,
    way_out,
    why_broken,
    why_unreadable,
)
from pyspark_topics.pipelines.state import Job, StatePath, write_note
from pyspark_topics.writer import Staged, stage_steps
from topics.client import Client, Refused

# Size and time of a file's last change.
Marks = list[int]
_SKIPPED = "skipped.json"
_BLOCK = 1 << 20


@dataclass
class Loaded:
    """The notes in the folder of a load."""

    state: StatePath
    jobs: list[Job] = field(init=False)
    skipped: set[str] = field(init=False)

    def __post_init__(self) -> None:
        found: list[StatePath] = list(self.state.glob("set-*.json"))
        read = (Job.read(path) for path in sorted(found, key=str))
        self.jobs = [job for job in read if job is not None]
        skipped = Job.read_json(self.state / _SKIPPED)
        self.skipped = set(skipped or ())

    # --- what the user says about files -----------------------------------------------------------------

    def skip(self, paths: Iterable[str]) -> None:
        """From now on, whatever happens to the file; what is committed of it stays."""
        if not self.skipped.issuperset(paths):
            self.skipped.update(paths)
            write_note(self.state / _SKIPPED, sorted(self.skipped))

    def again(self, paths: Iterable[str], about: dict[str, Any], run: str) -> None:
        """As if it had never been seen: once in a run. One that is being taken again goes on."""
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
        """Whether it is a file of this load: one that is there, or of which something is noted."""
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

    def last(self, path: str) -> Job | None:
        """The newest note about a file."""
        return next((job for job in reversed(self.jobs) if path == job.about["file"]), None)

    def unfinished(self) -> list[Job]:
        """The newest note of each file, if it is not finished and the file is not left out."""
        newest = {job.about["file"]: job for job in self.jobs if job.about["file"] not in self.skipped}
        return [job for job in self.jobs if not job.finished and newest.get(job.about["file"]) is job]

    def new(self, path: str, about: dict[str, Any], from_byte: int = 0) -> Job:
        return self._note(self.state / f"set-{len(self.jobs):06}.json", path, about, from_byte)

    def renew(self, job: Job) -> Job:
        """The file was changed before anything of it was committed: what it was does not matter."""
        self.jobs.remove(job)
        about = {key: value for key, value in job.about.items() if key not in ("file", "marks", "digest")}
        return self._note(job.path, job.about["file"], about, about.pop("from_byte", 0))

    def _note(self, note: StatePath, path: str, about: dict[str, Any], from_byte: int) -> Job:
        known = {"file": path, "marks": marks(path), "digest": digest(path), **about}
        job = Job(note, uuid.uuid4().hex, known | ({"from_byte": from_byte} if from_byte else {}))
        job.note(step=0, at=0)
        self.jobs.append(job)
        return job

    # --- copies of lines that were added ------------------------------------------------------------------

    def drop_copies(self) -> None:
        """Those that earlier runs have left. A job that is not finished keeps its own."""
        needed = {_copy_of(job) for job in self.unfinished()}
        self._drop(lambda name: name not in needed)

    def drop_copy(self, job: Job) -> None:
        """Once all of its lines are committed, and that is noted."""
        if job.finished:
            self._drop(_copy_of(job).__eq__)

    def _drop(self, is_meant: Callable[[str], bool]) -> None:
        copies = self.state / COPIES
        if isinstance(copies, Path) and copies.is_dir():
            folder = place(str(copies))
            folder.remove([name for name in folder.files("") if is_meant(name)])


def _copy_of(job: Job) -> str:
    """The name of the copy of its lines; empty if it reads the file itself."""
    return Path(job.about["file"]).name if job.about.get("from_byte") else ""


def marks(path: str) -> Marks:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def same(job: Job) -> bool:
    """Whether the file is still the one that the job is about, whatever the time of its last change."""
    path, noted = job.about["file"], job.about["marks"]
    if not os.path.isfile(path):
        return False
    now = marks(path)
    return bool(noted == now or (noted[0] == now[0] and job.about["digest"] == digest(path)))


def grew(job: Job) -> bool:
    """Whether whole lines were added to the lines that were loaded."""
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


# Input of one task; rows may be several times as large as JSON.
SPLIT_BYTES = 64 * 1024 * 1024
# Rows of one commit, as Arrow has them: well below what the server takes at once.
COMMIT_BYTES = 192 * 1024 * 1024
# So many files that cannot be loaded are named.
MOST_NAMED = 20


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

    def _about(self) -> dict[str, Any]:
        # Sizes are part of it: a load that goes on with another version has to find the same steps.
        return {"into": self.into, "split_bytes": SPLIT_BYTES, "commit_bytes": COMMIT_BYTES}

    def due(self, notes: Loaded, refused: list[str]) -> list[Job]:
        """What is to be done for the files that are there; `refused` gets a sentence for each that is not."""
        jobs = []
        for path in notes.find(self.files):
            last, why = notes.last(path), unreadable(path)
            if why is not None:
                refused.append(why)
            elif last is None:
                jobs.append(notes.new(path, self._about()))
            elif not last.finished or same(last):
                continue
            elif not (FileFormat.of(self, path).has_lines and grew(last)):
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
    client: Client
    notes: Loaded
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

    def _one(self, job: Job) -> None:
        path = job.about["file"]
        if not same(job):
            if job.begun:
                what = f"{path} was changed or removed while it was being loaded"
                raise PipelineFailed(f"{what}: put it back, {way_out(path)}")
            job = self.notes.renew(job)
        try:
            loader = _Loader(self.settings, self.context, self.client, job)
            loader.run()
        except (PySparkException, Py4JJavaError, Refused, BadRow, PipelineFailed) as error:
            raise why_broken(self.settings, self.context.spark, path, error) from error
        self.notes.drop_copy(job)
        self.files += 1
        self.records += loader.records


@dataclass
class _Loader:
    """One file, in steps that are committed in order."""

    settings: Load
    context: Context
    client: Client
    job: Job
    records: int = 0

    def run(self) -> None:
        context, job = self.context, self.job
        steps = self._steps()
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
                job.commit(self.client, staged, number + 1)
                loaded = sum(one.records for one in staged)
                self.records += loaded
                # As if the rest had as many records as what is done: they have not been counted.
                context.progress.advance(loaded, lag=self.records * (total - job.at) // (number + 1))
        if job.at >= total:
            job.finish()

    def _steps(self) -> RDD[Staged]:
        about = self.job.about
        path = about["file"]
        spark = self._session()
        format_ = FileFormat.of(self.settings, path)
        if about.get("from_byte"):
            frame = format_.tail(spark, path, about["from_byte"], self.context.state)
        else:
            frame = format_.frame(spark, path)
        options = WriteOptions(self.context.server, self.settings.into)
        return stage_steps(frame, options, about["commit_bytes"])

    def _session(self) -> SparkSession:
        spark = self.context.spark.newSession()
        # Splits must not depend on the machine: a load that goes on elsewhere has to find the same ones.
        spark.conf.set("spark.sql.files.minPartitionNum", "1")
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(self.job.about["split_bytes"]))
        return spark
