"""An embedded Spark session with what this source profits from already set."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from pyspark_topics.java import ensure_java
from pyspark_topics.source import DefaultSource

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


EMBEDDED = "local[*]"


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
        "spark.sql.redaction.options.regex": "(?i)url|apikey",
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
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in {**settings(master), **(extra or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def beside(session: SparkSession) -> SparkSession:
    """Another session on the same Spark, with views of its own, that knows the source.

    Spark looks for sources only where it finds its own files, and it looks for those in vain if there is a
    space in their path.
    """
    another = session.newSession()
    another.dataSource.register(DefaultSource)
    return another
