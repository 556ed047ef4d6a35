"""Frames on their way into topics: staged by tasks, committed by whoever knows what else belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_topics.pipelines.arrow_map import map_in_arrow
from pyspark_topics.pipelines.context import Server
from pyspark_topics.writing import Staged, Stager, ipc
from topics.client import Client

_REPORT = "partition INT, parts ARRAY<STRING>, records BIGINT"
_REPORT_ARROW = pa.schema(
    [("partition", pa.int32()), ("parts", pa.list_(pa.string())), ("records", pa.int64())]
)


@dataclass
class Stage:
    """One atomic write: parts in their order, then a commit under an identity."""

    server: Server
    # The target of rows that name none.
    topic: str | None

    def __post_init__(self) -> None:
        self.id: str | None = None
        self.parts: list[str] = []
        self.records = 0

    def add_frame(self, frame: DataFrame) -> None:
        """The rows of a frame, in the order of its partitions."""
        stager = self._stager(frame)
        reports = map_in_arrow(frame, partial(_stage, stager), _REPORT).collect()
        for report in sorted(reports, key=lambda one: one.partition):
            self.parts += report.parts
            self.records += report.records

    def _stager(self, frame: DataFrame) -> Stager:
        stager = Stager(self.server.writing_to(self.topic), frame.schema, overwrite=False)
        self.id = stager.stage = self.id or stager.stage
        return stager

    def add_rows(self, client: Client, name: str, rows: pa.RecordBatch) -> None:
        """A few rows that the driver has itself. `name` is unlike that of any task's part."""
        assert self.id is not None, "frames come first"
        client.put_part(self.id, name, ipc([rows]), self.topic)
        self.parts.append(name)

    def commit(self, client: Client, identity: str, batch: int) -> bool:
        """True if this is new; False if the same rows were committed under this identity before."""
        assert self.id is not None, "frames come first"
        answer = client.commit_stage(self.id, identity, batch, self.parts)
        return not answer["deduped"]

    def drop(self, client: Client) -> None:
        if self.id is not None:
            client.drop_stage(self.id)


def _stage(stager: Stager, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does; it reports one row."""
    counted = _Count()
    staged: Staged = stager.stage_rows(counted.through(batches))
    report = {"partition": [staged.partition], "parts": [staged.parts], "records": [counted.rows]}
    yield pa.RecordBatch.from_pydict(report, _REPORT_ARROW)


class _Count:
    rows = 0

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
