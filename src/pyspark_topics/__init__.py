"""Topics as Spark tables and streams: `spark.read.format("topics")`, and the same for write and streams.

    provider → options → subscription, offsets → batch │ micro_batch_stream → partitions
             → partition_reader (server, sealed files, an archive's table) → rows, loss → Spark
    Spark → writer (rows as JSON text, stages) → the server, exactly once

Spark finds the source by the name of this package. Executors talk to the server themselves, and open sealed
segments if they can see them. `attach` makes views of topics, for SQL.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_topics.provider import DefaultSource, attach

__all__ = ["DefaultSource", "attach", "publish_end"]

if "PYSPARK_GATEWAY_PORT" not in os.environ:
    # Spark looks for sources, and runs its workers, with the first `python3` on the PATH, which need not be
    # the one that has this package. A program that `spark-submit` runs was told.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

_HOMES = {"DefaultSource": "provider", "attach": "provider", "publish_end": "micro_batch_stream"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: what starts Spark's workers is in this package, too, and needs neither."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
