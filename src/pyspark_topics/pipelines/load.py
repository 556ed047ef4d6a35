"""`load`: Parquet, JSON or CSV files → a topic, each file once.

    driver:     files not loaded yet → a set → partitions, a few at a time → commits in order, noted
    executors:  the rows of a partition → stages of some hundred megabytes at most

Files that were loaded are remembered, so the same load may run again for those that came since. A set that
was interrupted is finished first, as it was planned.
"""

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.options import WriteOptions
from pyspark_topics.payload import ENVELOPE, as_records
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.jobs import Job
from pyspark_topics.pipelines.settings import FORMATS, check_name
from pyspark_topics.staging import Staged, stage_steps
from topics.client import Client

# As most programs write it: names first, and a quote inside quotes doubled.
_CSV = {"header": "true", "inferSchema": "true", "escape": '"'}
# Input of one task; rows may be several times as large as JSON.
SPLIT_BYTES = 64 * 1024 * 1024
# Rows of one commit, as Arrow has them: well below what the server takes at once.
COMMIT_BYTES = 192 * 1024 * 1024


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
    # Expressions that make the columns of the sink: data, tag, node, meta. Without them, all columns together
    # are the record.
    select: list[str] = []

    def __post_init__(self) -> None:
        check_name(self.into)
        if not self.files:
            raise ValueError('files has to say what to load, like ["exports/*.csv"]')

    def run(self, context: Context) -> Outcome:
        found, jobs = _find(self.files), _jobs(context.state)
        unfinished = (job for job in jobs if not job.finished)
        job = next(unfinished, None) or self._next(context.state, jobs, found)
        if job is None:
            return Outcome(lines=("nothing to load: all files are loaded",), facts={"files": 0, "records": 0})
        with context.server.client() as client:
            records = _Loader(self, context, client, job).run()
        count = len(job.about["files"])
        line = f"loaded {records:,} records of {count:,} files into {self.into}"
        return Outcome(lines=(line,), facts={"files": count, "records": records})

    def _next(self, state: Path, jobs: list[Job], found: dict[str, list[int]]) -> Job | None:
        """A set of the files that no earlier set has. One that was changed since counts as new."""
        earlier = {name: marks for job in jobs for name, marks in job.about["files"].items()}
        new = {name: marks for name, marks in found.items() if earlier.get(name) != marks}
        if not new:
            return None
        # Sizes are part of it: a load that goes on with another version has to find the same steps.
        about = {"files": new, "into": self.into, "split_bytes": SPLIT_BYTES, "commit_bytes": COMMIT_BYTES}
        job = Job.open(state / f"set-{len(jobs):06}.json", about)
        job.note(step=0, at=0)
        return job

    def frame(self, spark: SparkSession, files: list[str]) -> DataFrame:
        kind = self.format or _format(files)
        if kind == "json" and "multiLine" not in self.options:
            # A line is a record, as it stands: parsing it would only lose what Spark's types cannot hold.
            frame = spark.read.options(**self.options).text(files).where("trim(value) != ''")
            frame = frame.select(f.col("value").alias("data"))
        else:
            given = _CSV if kind == "csv" else {}
            frame = spark.read.options(**{**given, **self.options}).format(kind).load(files)
        if self.select:
            frame = frame.selectExpr(*self.select)
        return as_records(frame, self.into, ENVELOPE)  # a file's column `topic` is no target, but a value


def _format(files: list[str]) -> str:
    kinds = {FORMATS.get(Path(name).suffix.lower()) for name in files}
    if len(kinds) != 1 or None in kinds:
        raise PipelineFailed(
            "the files are not all .parquet, all .json (.jsonl, .ndjson) or all .csv: say which with format"
        )
    return str(kinds.pop())


def _find(patterns: list[str]) -> dict[str, list[int]]:
    """Files by absolute path, with what shows that they are still the same."""
    found = {}
    for pattern in patterns:
        matches = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
        if not matches:
            raise PipelineFailed(f"no file matches {pattern}")
        for name in matches:
            status = os.stat(name)
            found[os.path.abspath(name)] = [status.st_size, status.st_mtime_ns]
    return dict(sorted(found.items()))


def _jobs(state: Path) -> list[Job]:
    return [job for path in sorted(state.glob("set-*.json")) if (job := Job.read(path)) is not None]


@dataclass
class _Loader:
    settings: Load
    context: Context
    client: Client
    job: Job

    def run(self) -> int:
        context, job = self.context, self.job
        steps = self._steps()
        total = steps.getNumPartitions()
        together = context.spark.sparkContext.defaultParallelism
        records = 0
        context.progress.say("running")
        while job.at < total and not context.stop.is_set():
            chosen = list(range(job.at, min(job.at + together, total)))
            # A list for each partition, in their order, of its stages.
            found = context.spark.sparkContext.runJob(steps, lambda staged: [list(staged)], chosen)
            for number, staged in zip(chosen, found, strict=True):
                job.commit(self.client, staged, number + 1)
                loaded = sum(one.records for one in staged)
                records += loaded
                # As if the rest had as many records as what is done: they have not been counted.
                context.progress.advance(loaded, lag=records * (total - job.at) // (number + 1))
        if job.at >= total:
            job.finish()
        return records

    def _steps(self) -> RDD[Staged]:
        files = self.job.about["files"]
        now = _find(list(files)) if all(map(os.path.isfile, files)) else {}
        changed = [name for name in files if now.get(name) != files[name]]
        if changed:
            raise PipelineFailed(
                f"{changed[0]} was changed or removed while it was being loaded: put it back, or delete "
                f"{self.job.path} to give that load up"
            )
        spark = self.context.spark.newSession()
        # Splits must not depend on the machine: a load that goes on elsewhere has to find the same ones.
        spark.conf.set("spark.sql.files.minPartitionNum", "1")
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(self.job.about["split_bytes"]))
        frame = self.settings.frame(spark, list(files))
        options = WriteOptions(self.context.server, self.settings.into)
        return stage_steps(frame, options, self.job.about["commit_bytes"])
