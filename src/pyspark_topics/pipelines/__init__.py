"""Pipelines: everything bulk that happens to records, declared in a file and run on Spark.

    declaration (TOML or Python) → runner: a thread each, one Spark session → progress

    archive   topics → lake            exactly once by seq range, gaps beside it
    replay    lake → topic             by seq or time, at a given rate
    route     topics → query → topics  filter, join, window, aggregate
    load      files → topic
    audit     log, ledger, lake → an account of every seq
    erase     a tag → nothing of it left in log and lake, and a receipt

`follows` tells the ones that run until they are stopped from jobs, which end by themselves. A pipeline gets a
`Context` and returns an `Outcome`; nothing else connects it with the code that runs it.
"""

from pyspark_topics.pipelines.archive import Archive
from pyspark_topics.pipelines.audit import Audit
from pyspark_topics.pipelines.declaration import Declaration
from pyspark_topics.pipelines.erase import Erase
from pyspark_topics.pipelines.load import Load
from pyspark_topics.pipelines.replay import Replay
from pyspark_topics.pipelines.route import Route

__all__ = ["Archive", "Audit", "Declaration", "Erase", "Load", "Replay", "Route"]
