"""The sink: tasks stage their rows at the server, the driver makes them visible all at once.

The identity of a micro-batch is the id that Spark keeps in the checkpoint and the batch's number, so a
driver that starts again after a crash commits under the same one.
"""

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from pyspark_topics.errors import BatchTooLarge, NotRepeatable, OptionError
from pyspark_topics.options import WriteOptions
from pyspark_topics.rows import Rows
from pyspark_topics.staging import Staged, Stager, joined
from topics.client import Refused, TopicsError

Messages = list[Staged | None]


class SinkWriter:
    """What both writers have in common."""

    # What to do about a batch that is too large.
    smaller: str
    # What its user says to append.
    appending: str

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(f"a topic cannot be overwritten, only appended to: use {self.appending}")
        self.options = options
        self.stager = Stager(options, Rows.of(schema, options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.stager.stage_rows(iterator)

    def commit_stage(self, stage: str, identity: str, batch: int, messages: list[Staged]) -> None:
        with self.options.server.client() as client:
            try:
                joined(stage, messages).commit(client, identity, batch)
            except Refused as refusal:
                if refusal.code != "payload_too_large":
                    raise
                raise BatchTooLarge(f"{refusal.message}, and this batch has more: {self.smaller}") from None

    def drop_stage(self, stage: str) -> None:
        """The job has failed, and why is more important than this; the server gives up old stages anyway."""
        with suppress(TopicsError), self.options.server.client() as client:
            client.drop_stage(stage)


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    smaller = "write it in several jobs, each of which is atomic by itself"
    appending = 'mode("append")'

    def commit(self, messages: Messages) -> None:
        present = [message for message in messages if message is not None]
        if self.options.txn is not None:
            self._commit_once(*self.options.txn, present)
        elif any(message.parts for message in present):
            self.commit_stage(self.stager.stage, self.stager.stage, 0, present)

    def _commit_once(self, name: str, version: int, present: list[Staged]) -> None:
        """Also without rows: if the batch had some when it was written before, that must come out."""
        try:
            self.commit_stage(self.stager.stage, name, version, present)
        except Refused as refusal:
            if refusal.code != "stage_conflict":
                raise
            raise NotRepeatable(
                f'txnVersion {version} of txnAppId "{name}" was written before with other rows, or is older '
                "than the last 100 versions; nothing was written. A new checkpoint counts from 0 again, and "
                f"needs a new txnAppId ({refusal.message})"
            ) from None

    def abort(self, messages: Messages) -> None:
        self.drop_stage(self.stager.stage)


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Spark makes one for a micro-batch's tasks and another for its commit: only messages connect them."""

    smaller = (
        "make micro-batches smaller with the source's maxOffsetsPerTrigger (a batch that is planned already "
        "keeps its size: start with a new checkpointLocation)"
    )
    appending = 'outputMode("append"), or foreachBatch with txnAppId and txnVersion'

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if options.txn is not None:
            raise OptionError('option "txnAppId" is for batch writes: a stream has an identity of its own')
        super().__init__(options, schema, overwrite)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
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

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        for stage in {message.stage for message in messages if message is not None}:
            self.drop_stage(stage)
