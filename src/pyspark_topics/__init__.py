"""Topics as Spark tables and streams: `spark.read.format("topics")`, and the same for write and streams.

    options → subscription → offsets → partitions → reading: scan (HTTP) or direct (sealed files)
                                                  → schema, loss → batch, stream → Spark
    Spark → writing → rows (as JSON text) → staging → the server, exactly once

Spark finds the source by this package's name. Works on one machine and on a cluster: executors talk to the
server themselves, and open sealed segments where they see them. `attach` makes views of topics, for SQL.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_topics.source import DefaultSource
    from pyspark_topics.views import attach

__all__ = ["DefaultSource", "attach"]

if "PYSPARK_GATEWAY_PORT" not in os.environ:
    # Spark looks for sources, and runs its workers, with the first `python3` on the PATH, which need not be
    # the one that has this package. A program that `spark-submit` runs was told.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

_HOMES = {"DefaultSource": "source", "attach": "views"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: what starts Spark's workers is in this package, too, and needs neither."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
