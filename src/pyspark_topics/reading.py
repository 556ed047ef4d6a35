"""Seq ranges read by tasks: each from its sealed file where that is in sight, else from the server.

driver:    ranges → cut along sealed files → tasks, whose files the server keeps meanwhile
executor:  task → range by range → Arrow in the schema of the read, every gap announced where it lies
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pyarrow as pa

from pyspark_topics.direct import Renewal, SealedFiles
from pyspark_topics.loss import LossPolicy
from pyspark_topics.options import ReadOptions
from pyspark_topics.partitions import SeqRange, TaskPartition, split
from pyspark_topics.scan import ScanFilter, ScanReader
from pyspark_topics.schema import ReadSchema
from topics.client import Client

RENEWAL_PATIENCE_S = 1.0


@contextmanager
def planned(client: Client, ranges: list[SeqRange], options: ReadOptions) -> Iterator[list[TaskPartition]]:
    """Tasks that are done by the end of the block, and their files kept until then."""
    files = SealedFiles(client)
    try:
        yield plan(files, ranges, options)
    finally:
        files.release()


def plan(files: SealedFiles, ranges: list[SeqRange], options: ReadOptions) -> list[TaskPartition]:
    home = files.client.home
    shelved = [one for one in ranges if one.shelf is not None]
    logged = [one for one in ranges if one.shelf is None]
    tasks = split([*shelved, *(files.along(logged) if options.direct else logged)], options)
    if len(options.server.urls) > 1:
        for task in tasks:
            task.ranges = [replace(one, server=home(one.topic)) for one in task.ranges]
    return tasks


def read_task(
    options: ReadOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """What an executor does for Spark's source."""
    return (batch for _, batch in read_ranges(options, schema, chosen, partition))


def read_ranges(
    options: ReadOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[tuple[SeqRange, pa.RecordBatch]]:
    """Each range from its file where that is possible, else from the server."""
    from pyspark_topics.sealed import SegmentReader

    if options.archive is not None:
        yield from _from_both(options, schema, chosen, partition)
        return
    with (
        options.server.client() as client,
        # Of its own, because a scan may be under way; and not patient, because files are read without it.
        replace(options.server, patience_s=RENEWAL_PATIENCE_S).client() as keeper,
        closing(SegmentReader(schema, chosen)) as files,
    ):
        client.expect(partition.homes)
        keeper.expect(partition.homes)
        server = ScanReader(client, schema, LossPolicy(options.loss, schema), chosen)
        leases = Renewal(keeper, partition.pins)
        for one in partition.ranges:
            leases.keep()
            for batch in (files if files.can_read(one) else server).read(one):
                yield one, batch
                leases.keep()


def _from_both(
    options: ReadOptions, schema: ReadSchema, chosen: ScanFilter, partition: TaskPartition
) -> Iterator[tuple[SeqRange, pa.RecordBatch]]:
    """The same where what is gone from the log comes from the table of an archive."""
    # Loaded where it is needed: tables are read by pipelines, and these read topics.
    from pyspark_topics.archived import TableReader, UnionReader

    loss = LossPolicy(options.loss, schema)
    table = TableReader(options, schema, loss, chosen)
    # Whatever the reader does with loss, it may not be one.
    log_alone = replace(options, archive=None, loss="rows")
    with options.server.client() as client:
        client.expect(partition.homes)
        union = UnionReader(client, options, schema, loss, chosen)
        for one in partition.ranges:
            if one.shelf is not None:
                batches = table.read(one)
            else:
                part = TaskPartition([one])
                found = read_task(log_alone, UnionReader.inner(schema), chosen, part)
                batches = union.read(one, found)
            for batch in batches:
                yield one, batch
