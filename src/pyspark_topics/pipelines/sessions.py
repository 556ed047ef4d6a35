"""The Spark session that all pipelines of a process share."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pyspark_topics.errors import ForUsers, PipelineFailed
from pyspark_topics.session import spark_session

# Where PySpark repeats, as JSON, what is wrong with a query, before it raises the error that says so.
_ECHOES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass
class Sessions:
    """One session, started by whoever needs it first."""

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
            raise PipelineFailed(f"Spark does not start{where}{why}") from error

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
    """What is started meanwhile has this file as its standard error, for as long as it lives."""
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
