"""Spark sessions with what this source profits from already set, and work shared out over their executors."""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pyspark_topics import workers
from pyspark_topics.errors import ForUsers, SparkDoesNotStart
from pyspark_topics.java import ensure_java
from pyspark_topics.provider import DefaultSource

EMBEDDED = "local[*]"
# Of a task, as clusters have it.
ATTEMPTS = 4
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# Where PySpark repeats, as JSON, what is wrong with a query, before it raises the error that says so.
_ECHOES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

Item = TypeVar("Item")
Result = TypeVar("Result")


def settings(master: str | None = EMBEDDED) -> dict[str, str]:
    chosen = {
        # A micro-batch costs half as much when Python workers are reached through Unix sockets and small
        # checkpoint files are written by plain file-system calls.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Without this Spark refuses a read with pushdown = true.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Keys given as options must not show up in plans and logs.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|apikey",
        "spark.sql.redaction.options.regex": "(?i)url|apikey|storage",
    }
    if master is not None and master.startswith("local"):
        # One machine: a shuffle into 200 pieces would only cost time.
        chosen["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return chosen


def spark_session(
    app_name: str = "topics", master: str | None = None, extra: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark on a cluster by its master's address, or here. `extra` wins over our settings.

    Without `master` a program run by `spark-submit` uses what that was told, any other program this machine.
    """
    was_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not was_submitted:
        master = EMBEDDED
    builder = SparkSession.builder.appName(app_name)
    if not was_submitted:
        ensure_java()
        # Workers have to be this Python: the first one on the PATH need not have our packages.
        is_local = master is not None and master.startswith("local")
        os.environ["PYSPARK_PYTHON"] = workers.choose_python(os.environ, is_local=is_local)
    if master is not None:
        builder = builder.master(repeating(master))
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**settings(master), **(extra or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def repeating(master: str) -> str:
    """On one machine Spark gives a task up when its worker dies, unless it is told to try again."""
    cores = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return master if cores is None else f"local[{cores[1] or 1}, {ATTEMPTS}]"


def beside(session: SparkSession) -> SparkSession:
    """Another session on the same Spark, with views of its own, that knows the source.

    Spark looks for sources only where it finds its own files, and it looks for those in vain if there is a
    space in their path.
    """
    another = session.newSession()
    another.dataSource.register(DefaultSource)
    return another


def on_executors(
    spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item], most_tasks: int | None = None
) -> list[Result]:
    """The results of `work` in the order of the items: a task for each, or fewer where there is a limit."""
    if not items:
        return []
    tasks = min(len(items), most_tasks or len(items))
    results: list[Result] = spark.sparkContext.parallelize(items, tasks).map(work).collect()
    return results


@dataclass
class SharedSession:
    """One session for all pipelines of a process, started by the first that needs it."""

    app_name: str
    master: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    # Where the JVM writes what it has to say. None: to our standard error.
    log: Path | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = self._start()
                for name in _ECHOES:
                    PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
            return self._session

    def _start(self) -> SparkSession:
        try:
            with _errors_to(self.log):
                return spark_session(self.app_name, self.master, self.settings)
        except ForUsers:
            raise
        except Exception as error:  # whatever is wrong with master or settings, the JVM has told its log
            where = f" on {self.master}" if self.master else ""
            why = f", and {self.log} says why" if self.log else ""
            raise SparkDoesNotStart(f"Spark does not start{where}{why}") from error

    def is_gone(self) -> bool:
        """The JVM died, or the cluster ended the application. A process cannot start another one."""
        try:
            return self._session is not None and bool(self._session.sparkContext._jsc.sc().isStopped())
        except Exception:
            return True

    def stop(self) -> None:
        with self._lock:
            if self._session is not None:
                # A cluster or a JVM that is gone already has nothing left to stop.
                with suppress(Exception):
                    self._session.stop()
                self._session = None


@contextmanager
def _errors_to(path: Path | None) -> Iterator[None]:
    """Give processes that are started meanwhile this file as their standard error."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
