"""Staging without Spark: the parts that are sent, and what a commit is told of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_topics import writer
from pyspark_topics.client import Client
from pyspark_topics.errors import BadRow
from pyspark_topics.options import ServerOptions, WriteOptions
from pyspark_topics.rows import SinkRows
from pyspark_topics.writer import Staged, Stager, gathered, joined, send
from tests.support import ServerProcess

Part = tuple[str, str, list[str], str | None]


def rows(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": list(texts)})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """What arrives at the server."""
    parts: list[Part] = []

    def put_part(_: Client, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> None:
        texts = pa.ipc.open_stream(arrow_stream).read_all()["data"].to_pylist()
        parts.append((stage, part, texts, topic))

    monkeypatch.setattr(Client, "put_part", put_part)
    return parts


OPTIONS = WriteOptions(ServerOptions("http://127.0.0.1:1"), "t")


def test_few_rows_are_one_part(sent: list[Part]) -> None:
    staged = send(OPTIONS, Staged("s"), [rows("1"), rows(), rows("2", "3")], "7-")
    assert sent == [("s", "7-0", ["1", "2", "3"], "t")]
    assert staged == Staged("s", ["7-0"], 3)


def test_no_rows_are_no_part(sent: list[Part]) -> None:
    assert send(OPTIONS, Staged("s"), [rows()]) == Staged("s")
    assert sent == []


def test_large_batches_are_cut_and_small_ones_put_together(
    sent: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 100)
    large = rows(*(f"{n:020}" for n in range(40)))
    staged = send(OPTIONS, Staged("s"), [large, *(rows(f"{n}") for n in range(3))])
    assert staged.parts == [part for _, part, _, _ in sent] == [str(n) for n in range(len(sent))]
    assert staged.records == 43
    assert [text for _, _, texts, _ in sent for text in texts] == [
        *large["data"].to_pylist(),
        *(f"{n}" for n in range(3)),
    ]
    assert len(sent) > 5


def test_a_part_of_the_drivers_own_is_not_counted_as_rows(sent: list[Part]) -> None:
    staged = Staged("s", ["0"], 5)
    staged.put(Client("http://127.0.0.1:1"), "tombstones", [rows("{}")], None)
    assert (staged.parts, staged.records) == (["0", "tombstones"], 5)
    assert sent == [("s", "tombstones", ["{}"], None)]


def test_what_tasks_report_is_put_in_the_order_of_their_partitions() -> None:
    reports = [
        Staged("s", ["9-0"], 2, partition=1),
        Staged("s", ["3-0", "3-1"], 4, errors=1),
        Staged("s", partition=2),
    ]
    assert joined("s", reports) == Staged("s", ["3-0", "3-1", "9-0"], 6, errors=1)
    assert joined("s", []) == Staged("s")


def test_batches_are_gathered_until_they_are_large_enough() -> None:
    one = rows("x" * 40)
    assert [len(group) for group in gathered([one] * 5, one.nbytes * 2)] == [2, 2, 1]
    assert list(gathered([rows()], 1)) == []


@pytest.mark.parametrize(
    ("bad", "says"), [({"tag": "t" * 300}, "tag has more"), ({"meta": "[1]"}, "meta is no object")]
)
def test_a_row_that_is_refused_is_counted_over_all_batches(
    server: ServerProcess, bad: dict[str, str], says: str
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
