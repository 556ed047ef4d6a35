"""Spark: our source against its own Parquet reader, on the same rows; sink, streams, archive."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders import Topics
from benchmarks.figures import Bar, Figure, at_least, at_most, times_peer
from benchmarks.rounds import Contender, compare, settle
from benchmarks.session import ROOT, Session
from benchmarks.spark_jobs import ANSWER, JSON_BYTES
from tests.support.stores import S3

AREA = "spark"
_TOPIC = "spark"
_PIPELINE = """
[pipeline.first]
kind = "archive"
topics = ["spark-small"]
table = "first"
"""


_Rates = list[float]


def _figure(
    name: str, ours: _Rates, bar: Bar | None, label: str | None = None, peer: _Rates | None = None
) -> Figure:
    figure = Figure.of_rounds(AREA, name, ours, "records/s", bar=bar)
    if peer is not None:
        figure.peer, figure.peer_value, figure.peer_spread = label, median(peer), (min(peer), max(peer))
    return figure


class SparkProcess:
    def __init__(self, log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spark_jobs"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def run(self, job: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"job": job, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER.encode()):
                answer = json.loads(line.removeprefix(ANSWER.encode()))
                if "error" in answer:
                    raise RuntimeError(f"{job}: {answer['error']}")
                return answer["result"]
        raise RuntimeError("Spark ended")

    def close(self) -> None:
        self._process.communicate(timeout=60)


def run(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        server = Topics(directory / "topics")
        spark = SparkProcess(directory / "spark.log")
        bench = _Bench(session, server, spark, directory)
        try:
            yield from bench.figures()
        finally:
            spark.close()
            server.close()


class _Bench:
    def __init__(self, session: Session, server: Topics, spark: SparkProcess, directory: Path) -> None:
        self._session = session
        self._server = server
        self._spark = spark
        self._directory = directory
        self._count = session.sizes.spark_records
        self._parquet = str(directory / "rows.parquet")
        self._names = 0

    @property
    def _url(self) -> str:
        return self._server.server.url

    def _fresh(self, what: str) -> str:
        self._names += 1
        return str(self._directory / f"{what}-{self._names}")

    def figures(self) -> Iterator[Figure]:
        self._session.say(f"  {self._count} records of {JSON_BYTES} bytes")
        self._spark.run("prepare", parquet=self._parquet, count=self._count)
        yield self._sink()
        self._fill()
        yield self._compared(
            "batch scan, sealed files read directly", self._scan("auto"), self._native(), 0.8
        )
        yield self._compared("batch scan over HTTP", self._scan("never"), self._native(), 0.4)
        parsed = self._scan("auto", parsed=True), self._native(parsed=True)
        yield self._compared("batch scan with from_json, read directly", *parsed, 0.7)
        yield self._compared(
            # At most 1.2 times as long as the same records take in one scan.
            "backlog with availableNow, micro-batches of a million",
            self._drain(),
            self._scan("auto"),
            1 / 1.2,
        )
        yield self._micro_batches()
        yield from self._archive()
        yield self._first_batch()

    # --- writing ----------------------------------------------------------------------------------------

    def _sink(self) -> Figure:
        count = min(self._count, self._session.sizes.spark_sink_records)
        rates = []
        for number in range(self._session.sizes.rounds + 1):
            name = f"spark-sink-{number}"
            self._server.create([name], "disk")
            rates.append(count / self._job("sink", topic=name, count=count, parquet=self._parquet))
            assert self._server.server.get(f"/v0/topics/{name}")["head_seq"] == count
            self._server.drop([name])
            settle(self._server.pid, self._session.sizes.settle_s)
        counted = rates[1:]  # the first one warms up
        return _figure(f"sink, one atomic job of {count} records, class disk", counted, at_least(300_000))

    def _fill(self) -> None:
        """All rows in one topic, and sealed but for the last few, which a restart makes sure of."""
        self._server.create([_TOPIC], "disk")
        self._job("sink", topic=_TOPIC, count=self._count, parquet=self._parquet)
        server = self._server.server
        server.stop()
        server.start()
        self._server.pid = server.pid
        sealed = server.get(f"/v0/topics/{_TOPIC}/segments")["tail_from_seq"]
        self._session.say(f"  {sealed / self._count:.0%} of the records are in sealed files")

    # --- reading ----------------------------------------------------------------------------------------

    def _job(self, job: str, **arguments: Any) -> Any:
        return self._spark.run(job, url=self._url, **arguments)

    def _contender(self, label: str, work: Callable[[], float]) -> Contender:
        return Contender(label, lambda _: (self._count, work()))

    def _native(self, *, parsed: bool = False) -> Contender:
        return self._contender(
            "spark.read.parquet",
            lambda: self._spark.run("scan_parquet", parquet=self._parquet, parsed=parsed, count=self._count),
        )

    def _scan(self, direct: str, *, parsed: bool = False) -> Contender:
        return self._contender(
            "batch scan",
            lambda: self._job("scan_topic", topic=_TOPIC, direct=direct, parsed=parsed, count=self._count),
        )

    def _drain(self) -> Contender:
        return self._contender(
            "stream",
            lambda: self._job("drain", topic=_TOPIC, checkpoint=self._fresh("drain"), count=self._count),
        )

    def _compared(self, name: str, ours: Contender, peer: Contender, bar: float) -> Figure:
        self._session.say(f"  {name}")
        # Parquet was read for the sink several times by now, and no topic was: both are to be warm.
        warm_up = self._session.sizes.jvm_rounds
        return compare(self._session, AREA, name, ours, peer, times_peer(bar), warm_up=warm_up)

    # --- small things -----------------------------------------------------------------------------------

    def _micro_batches(self) -> Figure:
        name, batches = "spark-small", self._session.sizes.rounds * 10
        self._server.create([name], "disk")
        took = self._job("micro_batches", topic=name, checkpoint=self._fresh("micro"), batches=batches)
        return Figure(AREA, "micro-batch of 5 rows, from trigger to commit", took, "ms", bar=at_most(100))

    def _archive(self) -> Iterator[Figure]:
        """To a folder, to S3 on this machine, and the same files to S3 as they are; in turns."""
        local: _Rates = []
        remote: _Rates = []
        plain: _Rates = []
        size, lake = 0, ""
        store = S3()
        try:
            for _ in range(self._session.sizes.rounds + 1):
                lake = self._fresh("lake")
                size = self._archived(local, lake, {})
                self._archived(remote, store.uri(lake.strip("/")), store.options)
                puts = {"table": lake, "target": store.uri("puts"), "storage": store.options}
                plain.append(self._count / self._spark.run("puts", **puts))
        finally:
            store.stop()
        # The first one of each warms up: it loads what makes tables, and starts workers.
        local, remote, plain = local[1:], remote[1:], plain[1:]
        yield _figure("archive, log to committed Delta table", local, at_least(250_000))
        share = size / (self._count * JSON_BYTES) * 100
        yield Figure(AREA, "archive's bytes, of the JSON's", share, "%", bar=at_most(25))
        to_store = _figure("archive to S3 (moto)", remote, times_peer(0.6), "to a folder", local)
        yield to_store
        # Where that is missed, a store that does not take more may be the limit, and not the archive.
        store_bar = None if to_store.reached else times_peer(0.8)
        yield _figure("archive to S3 (moto), its files", remote, store_bar, "plain puts", plain)
        yield self._union(lake)

    def _archived(self, rates: _Rates, table: str, storage: Mapping[str, str]) -> int:
        where = {"table": table, "state": self._fresh("state"), "storage": storage}
        elapsed, size = self._job("archive", topic=_TOPIC, count=self._count, **where)
        rates.append(self._count / elapsed)
        return int(size)

    def _union(self, lake: str) -> Figure:
        """One half is in the table alone, the other in the log alone. Nothing reads the topic afterwards."""
        half = self._count // 2
        self._server.server.post(f"/v0/topics/{_TOPIC}/delete", {"before_seq": half + 1})
        parts = {"table": (0, half, lake), "log": (half, self._count, None), "both": (0, self._count, lake)}
        rates: dict[str, _Rates] = {part: [] for part in parts}
        for _ in range(self._session.sizes.rounds + 1):
            for part, (after, up_to, archive) in parts.items():
                took = self._job("scan_part", topic=_TOPIC, after=after, up_to=up_to, archive=archive)
                rates[part].append((up_to - after) / took)
        warm = {part: found[1:] for part, found in rates.items()}
        slower = min("table", "log", key=lambda part: median(warm[part]))
        name = "union of archive and log, against the slower of them"
        return _figure(name, warm["both"], times_peer(0.8), f"the {slower} alone", warm[slower])

    def _first_batch(self) -> Figure:
        """From the command to its first committed batch, JVM and all; the second time, with warm files."""
        folder = self._directory / "first"
        folder.mkdir()
        (folder / "pipelines.toml").write_text(_PIPELINE)
        took = [self._run_command(folder) for _ in range(min(self._session.sizes.starts, 2))]
        return Figure(AREA, "`topics pipeline run` to its first batch", took[-1], "s", bar=at_most(10))

    def _run_command(self, folder: Path) -> float:
        self._server.server.post("/v0/topics/spark-small", {"records": [{"data": 1}]})
        command = [sys.executable, "-m", "topics.cli.main", "pipeline", "run", "pipelines.toml"]
        started = time.perf_counter()
        with subprocess.Popen(
            [*command, "--once", "--json", "--url", self._url],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line).get("batches"):
                    elapsed = time.perf_counter() - started
                    process.communicate(timeout=60)
                    return elapsed
        raise RuntimeError("the pipeline ended without a batch")
