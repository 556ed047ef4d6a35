"""The sink: tasks stage their rows at the server, the driver makes them visible all at once.

    task:    rows → JSON text → parts of a stage, invisible
    driver:  commit of the stage under an identity → appended once, whatever is repeated

The identity of a micro-batch is the id that Spark keeps in the checkpoint and the batch's number, so a
driver that starts again after a crash commits under the same one, and the server knows it already.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_topics.errors import BatchTooLarge, NotRepeatable, OptionError
from pyspark_topics.options import WriteOptions
from pyspark_topics.rows import Rows
from topics.client import Refused, TopicsError

# Parts of about this size: far below the server's limit for a body, large enough not to count.
PART_BYTES = 8 * 1024 * 1024
# Names under which Spark tells its tasks what they are part of. The first is the id in the checkpoint.
QUERY_ID = "sql.streaming.queryId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task reports: which parts hold its rows, in order."""

    stage: str
    partition: int
    query_id: str | None
    parts: list[str] = field(default_factory=list)


class Stager:
    """What all writers have in common: rows go to the server in tasks, and count from the commit on."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic cannot be overwritten, only appended to: use mode("append")')
        self.options = options
        self.rows = Rows.of(schema, options)
        self.stage = uuid.uuid4().hex

    def stage_rows(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        assert task is not None
        staged = Staged(self.stage, task.partitionId(), task.getLocalProperty(QUERY_ID))
        with self.options.client() as client:
            for number, part in enumerate(parts_of(map(self.rows.render, batches))):
                # No other attempt has this id, so a straggler can never replace a part that counts.
                name = f"{task.taskAttemptId()}-{number}"
                client.put_part(self.stage, name, ipc(part), self.options.topic)
                staged.parts.append(name)
        return staged

    # What to do about a batch that is too large.
    smaller = "write it in several jobs, each of which is atomic by itself"

    def commit_stage(self, stage: str, identity: str, batch: int, messages: list[Staged]) -> None:
        ordered = sorted(messages, key=lambda message: message.partition)
        with self.options.client() as client:
            try:
                client.commit_stage(stage, identity, batch, [part for m in ordered for part in m.parts])
            except Refused as refusal:
                if refusal.code != "payload_too_large":
                    raise
                raise BatchTooLarge(f"{refusal.message}, and this batch has more: {self.smaller}") from None

    def drop_stage(self, stage: str) -> None:
        """The job has failed, and why is more important than this; the server gives up old stages anyway."""
        with suppress(TopicsError), self.options.client() as client:
            client.drop_stage(stage)


class BatchWriter(Stager, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.stage_rows(iterator)

    def commit(self, messages: list[Staged | None]) -> None:
        present = [message for message in messages if message is not None]
        if any(message.parts for message in present):
            self.commit_stage(self.stage, self.stage, 0, present)

    def abort(self, messages: list[Staged | None]) -> None:
        self.drop_stage(self.stage)


class StreamWriter(Stager, DataSourceStreamArrowWriter):
    """Spark makes one for a micro-batch's tasks and another for its commit: only messages connect them."""

    smaller = (
        "make micro-batches smaller with the source's maxOffsetsPerTrigger (a batch that is planned already "
        "keeps its size: start with a new checkpointLocation)"
    )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.stage_rows(iterator)

    def commit(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        present = [message for message in messages if message is not None]
        if not present:
            return  # no task, no rows
        # A batch without rows is committed, too: if it had some when it ran before, that must come out.
        query_id = present[0].query_id
        if query_id is None:
            raise NotRepeatable(
                "Spark did not tell its tasks which query they belong to; nothing was written"
            )
        self.commit_stage(present[0].stage, query_id, batchId, present)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        for stage in {message.stage for message in messages if message is not None}:
            self.drop_stage(stage)


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches gathered, and large ones cut, to parts of about the same size."""
    part: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pieces = max(batch.nbytes // PART_BYTES, 1)
        rows = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, max(rows, 1)):
            piece = batch.slice(start, rows)
            part.append(piece)
            size += piece.nbytes
            if size >= PART_BYTES:
                yield part
                part, size = [], 0
    if part:
        yield part


def ipc(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
