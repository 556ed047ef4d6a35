"""Topics as Spark tables and streams: `spark.read.format("topics")`, and the same for write and streams.

    options → subscription → offsets → partitions → reading: scan (HTTP) or direct (sealed files)
                                                  → schema, loss → batch, stream → Spark
    Spark → writing → rows (as JSON text) → staging → the server, exactly once

Spark finds the source by this package's name. Works on one machine and on a cluster: executors talk to the
server themselves, and open sealed segments where they see them.
"""

from pyspark_topics.source import DefaultSource

__all__ = ["DefaultSource"]
