"""Staging without Spark: parts of a good size, and rows that are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_topics.client import Client
from pyspark_topics.errors import BadRow
from pyspark_topics.options import ServerOptions, WriteOptions
from pyspark_topics.rows import SinkRows
from pyspark_topics.writer import Staged, Stager, send
from tests.spark.server import Server

OPTIONS = WriteOptions(ServerOptions("http://127.0.0.1:1"), "t")


def test_large_batches_are_cut_and_small_ones_put_together(server: Server, topic: str) -> None:
    def rows(*texts: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"data": list(texts)})

    large = [f'"{n:050000}"' for n in range(400)]
    batches = [rows(*large), rows(), *(rows(str(n)) for n in range(3))]
    staged = send(WriteOptions(ServerOptions(server.url), topic), Staged(topic), batches)
    assert staged.records == 403
    assert 2 < len(staged.parts) < 6
    with Client(server.url) as client:
        staged.commit(client, topic, 0)
    assert server.data(topic) == [*(text.strip('"') for text in large), 0, 1, 2]


@pytest.mark.parametrize(
    ("bad", "says"), [({"tag": "t" * 300}, "tag has more"), ({"meta": "[1]"}, "meta is no object")]
)
def test_a_row_that_is_refused_is_counted_over_all_batches(
    server: Server, bad: dict[str, str], says: str
) -> None:
    good = {"data": "1", "tag": "t", "meta": "{}"}
    batches = [pa.RecordBatch.from_pylist([good, good]), pa.RecordBatch.from_pylist([good, good | bad, good])]
    with pytest.raises(BadRow, match=f'for topic "t", partition 4, row 4: {says}'):
        send(WriteOptions(ServerOptions(server.url), "t"), Staged("counted", partition=4), batches)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["1", "ann", None], "row 2: data is not valid JSON.*'data': 'ann'"),
        (["1", None, "ann"], "row 2: a row has NULL as its data.*'data': None"),
    ],
)
def test_what_is_said_of_a_row_is_true_of_the_row_that_is_shown(texts: list[str | None], says: str) -> None:
    stager = Stager(OPTIONS, SinkRows.of(StructType([StructField("data", StringType())]), OPTIONS))
    with pytest.raises(BadRow, match=says):
        list(stager._rendered([pa.RecordBatch.from_pydict({"data": texts})], Staged("s")))
