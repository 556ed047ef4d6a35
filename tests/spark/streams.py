"""A streaming query that tests run again and again, and what they look for in its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery


class Stream:
    """A query that can be run again and again from one checkpoint; `rows` is everything it has delivered."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self.checkpoint = folder / "checkpoint"
        self.rows: list[Row] = []
        self.batches: list[list[Row]] = []
        self.query: StreamingQuery | None = None

    def start(self, topic: str, *, once: bool = True, **options: object) -> StreamingQuery:
        texts = {name: str(value) for name, value in options.items()}
        texts.setdefault("startingOffsets", "earliest")
        frame = self._spark.readStream.format("topics").option("url", self._url).option("subscribe", topic)
        writer = (
            frame.options(**texts)
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
        )
        self.query = (writer.trigger(availableNow=True) if once else writer).start()
        return self.query

    def _take(self, frame: DataFrame, _batch: int) -> None:
        rows = frame.collect()
        self.batches.append(rows)
        self.rows += rows

    def run(self, topic: str, **options: object) -> list[Row]:
        """Everything that is there now; returns what this run added."""
        before = len(self.rows)
        assert self.start(topic, **options).awaitTermination(60)
        return self.rows[before:]


def seqs(rows: list[Row]) -> list[int]:
    return [row.seq for row in rows if row.kind == "record"]


def gaps(rows: list[Row]) -> list[tuple[int, int, str]]:
    return [(row.gap_from, row.gap_to, row.reason) for row in rows if row.kind == "tombstone"]


def failure(run: Callable[[], Any]) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run()
    return str(caught.value)
