"""Before the log is trimmed: compare what the table returns with the log, record by record.

driver:     what is live in the log, up to the archive's position, cut into ranges
executors:  a range from the log, the same range from the files of the table → the first seq that differs
"""

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import StreamOffset, TopicView
from pyspark_topics.options import SourceOptions
from pyspark_topics.partition_reader import read_ranges
from pyspark_topics.partitions import ScanFilter, SeqRange, TaskPartition
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import TableRange, may_hold
from pyspark_topics.pipelines.table_schema import RECORDS
from pyspark_topics.rows import ReadSchema
from pyspark_topics.session import on_executors

# Both sides of a stretch are in memory at once.
RANGE_SEQS = 50_000
# Everything a record has; the epoch is part of what is asked for.
_COMPARED = ReadSchema(tuple(name for name in RECORDS.names if name != "epoch"))


def read_back(
    spark: SparkSession, options: SourceOptions, lake: Lake, view: TopicView, at: StreamOffset
) -> None:
    """Raises if a record of the log, up to `at`, is not in the lake just as it is in the log."""
    files = lake.files()
    stretches = []
    for first in range(view.floor, at.seq + 1, RANGE_SEQS):
        last = min(first + RANGE_SEQS - 1, at.seq)
        holding = tuple(one.path for one in files if may_hold(one, view.name, at.epoch, first, last))
        stretches.append(TableRange(lake.location, holding, view.name, at.epoch, first, last))
    # From the server itself: a sealed file may be what is damaged, and gaps are known already.
    plain = replace(options, loss="ignore", direct=False)
    found = on_executors(spark, partial(first_difference, plain), stretches)
    differing = [seq for seq in found if seq is not None]
    if differing:
        raise PipelineFailed(
            f'{lake.path} does not give back seq {differing[0]} of topic "{view.name}" as the log has it, so '
            f"nothing of this topic was deleted: compare the two before you go on without trim"
        )


def first_difference(options: SourceOptions, stretch: TableRange) -> int | None:
    """Return the first seq that differs, on an executor. Records deleted from the log since do not count."""
    wanted = SeqRange(
        stretch.topic, StreamOffset(stretch.first - 1, stretch.epoch), stretch.last, stretch.epoch
    )
    ranges = read_ranges(options, _COMPARED, ScanFilter(), TaskPartition([wanted]))
    log = pa.Table.from_batches((batch for _, batch in ranges), _COMPARED.arrow)
    if not log.num_rows:
        return None
    if not stretch.files:
        return _seq(log, 0)
    table = stretch.read(_COMPARED.names)
    table = table.filter(pc.is_in(table["seq"], value_set=log["seq"])).cast(log.schema)
    if table.equals(log):
        return None
    for row, (ours, theirs) in enumerate(zip(log.to_pylist(), table.to_pylist(), strict=False)):
        if ours != theirs:
            return _seq(log, row)
    return _seq(log, min(table.num_rows, log.num_rows - 1))


def _seq(log: pa.Table, row: int) -> int:
    seq: int = log["seq"][row].as_py()
    return seq
