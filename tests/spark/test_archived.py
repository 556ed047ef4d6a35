"""One reader over archive and log: every seq once, whichever of the two has it, and every gap of either."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pyspark_topics.archived import Archived, UnionReader
from pyspark_topics.batch import BatchReader
from pyspark_topics.errors import LossRefused, OptionError
from pyspark_topics.loss import LossPolicy
from pyspark_topics.micro_batch_stream import StreamReader
from pyspark_topics.offsets import Offsets, StreamOffset
from pyspark_topics.options import SourceOptions, parse_read
from pyspark_topics.partitions import ScanFilter, SeqRange, TaskPartition, ranges_between
from pyspark_topics.pipelines.archive import Target, write_task
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.parquet import PLAIN
from pyspark_topics.rows import ReadSchema, spark_schema
from tests.spark.pipelines.lakes import forget_gaps
from tests.spark.server import Server
from tests.spark.wiretap import Wiretap

pytestmark = pytest.mark.timeout(300)
COLUMNS = "topic,seq,ts,node,tag,data,meta"


def options(server: Server, topic: str, *, streaming: bool = False, **more: str) -> SourceOptions:
    return parse_read({"url": server.url, "subscribe": topic, **more}, streaming=streaming)


class Archive:
    """What `archive` does, without Spark."""

    def __init__(self, server: Server, topic: str, table: str) -> None:
        self.server, self.topic, self.table = server, topic, table
        self.lake = Lake(table)

    def up_to(self, seq: int, *, trim: bool = True) -> None:
        state = self.server.state(self.topic)
        at = self.lake.position(self.topic)
        since: Offsets = {} if at is None else {self.topic: at}
        end = {self.topic: StreamOffset(seq, state["epoch"])}
        reading = options(self.server, self.topic, columns=COLUMNS, direct="never")
        target = Target(self.lake.location, self.lake.columns, PLAIN, 1 << 20)
        part = TaskPartition(ranges_between(since, end, {}))
        written = write_task(reading, target, part)
        self.lake.commit(written.files, since, end, written.gaps)
        if trim:
            self.server.delete(self.topic, before_seq=seq + 1)


@pytest.fixture
def archive(server: Server, topic: str, tmp_path: Path) -> Archive:
    return Archive(server, topic, str(tmp_path / "lake"))


def rows(reader: BatchReader, tasks: list[TaskPartition] | None = None) -> list[dict[str, Any]]:
    tasks = reader.partitions() if tasks is None else tasks
    again = pickle.loads(pickle.dumps(tasks))
    return [row for task in again for batch in reader.read(task) for row in batch.to_pylist()]


def union(archive: Archive, **more: str) -> BatchReader:
    chosen = options(archive.server, archive.topic, archive=archive.table, **more)
    return BatchReader(chosen, spark_schema(chosen))


def seqs(found: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in found if row["seq"] is not None]


def gaps(found: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [(row["gap_from"], row["gap_to"], row["reason"]) for row in found if row["gap_from"] is not None]


def test_what_was_trimmed_comes_from_the_table_and_the_rest_from_the_log(archive: Archive) -> None:
    server, topic = archive.server, archive.topic
    records = [
        {"data": {"n": n}, "tag": f"t{n % 2}", "node": "a", "meta": {"event_ts": n}} for n in range(10)
    ]
    server.append(topic, *records)
    plain = options(server, topic)
    before = rows(BatchReader(plain, spark_schema(plain)))
    archive.up_to(3)
    archive.up_to(6)
    assert rows(union(archive)) == before, "the same rows, whole"
    for start in range(11):
        found = rows(union(archive, startingOffsets=f'{{"{topic}": {start}}}'))
        assert seqs(found) == list(range(start + 1, 11)), "from any offset"
    found = rows(union(archive, startingOffsets=f'{{"{topic}": 2}}', endingOffsets=f'{{"{topic}": 5}}'))
    assert seqs(found) == [3, 4, 5]
    assert seqs(rows(union(archive, tag="t1"))) == [2, 4, 6, 8, 10]
    assert seqs(rows(union(archive, tag="t*", columns="seq"))) == list(range(1, 11))
    assert seqs(rows(union(archive, node="a"))) == []
    assert [row["data"] for row in rows(union(archive, columns="data", loss="ignore"))] == [
        f'{{"n":{n}}}' for n in range(10)
    ]


def test_files_that_delta_rs_wrote_are_read_as_ours(archive: Archive) -> None:
    archive.server.append(archive.topic, *({"data": n, "tag": f"t{n % 2}"} for n in range(6)))
    archive.up_to(2)
    DeltaTable(archive.table).delete("seq = 1")
    archive.lake.refresh()
    archive.up_to(4)
    found = rows(union(archive))
    assert [(row["seq"], row["data"]) for row in found] == [(n, str(n - 1)) for n in range(2, 7)]
    assert seqs(rows(union(archive, tag="t1"))) == [2, 4, 6]
    assert seqs(rows(union(archive, tag="t*"))) == [2, 3, 4, 5, 6]


def test_an_archive_ahead_of_the_floor_gives_nothing_twice(archive: Archive) -> None:
    archive.server.append(archive.topic, *range(10))
    archive.up_to(8, trim=False)
    archive.server.delete(archive.topic, before_seq=4)
    archive.server.delete(archive.topic, seqs=[6])
    # The log counts for what it still has: what was deleted there is gone.
    assert seqs(rows(union(archive))) == [1, 2, 3, 4, 5, 7, 8, 9, 10]


def test_an_archive_behind_the_floor_leaves_the_loss_to_be_announced(archive: Archive) -> None:
    server, topic = archive.server, archive.topic
    server.append(topic, *range(4))
    archive.up_to(3)
    server.configure(topic, cap_records=2)
    server.append(topic, *range(4))
    found = rows(union(archive))
    assert seqs(found) == [1, 2, 3, 7, 8]
    assert gaps(found) == [(4, 6, "cap")]


def test_gaps_of_both_are_announced_once(archive: Archive) -> None:
    server, topic = archive.server, archive.topic
    server.configure(topic, cap_records=4)
    server.append(topic, *range(6))
    archive.up_to(4, trim=False)
    server.append(topic, *range(6))
    found = rows(union(archive))
    assert seqs(found) == [3, 4, 9, 10, 11, 12]
    assert gaps(found) == [(1, 2, "cap"), (5, 8, "cap")]
    assert gaps(rows(union(archive, startingOffsets=f'{{"{topic}": 1}}')))[0] == (2, 2, "cap")
    with pytest.raises(LossRefused, match="seqs 1 to 2"):
        rows(union(archive, loss="fail"))
    # What was evicted and is archived is not lost.
    assert gaps(rows(union(archive, startingOffsets=f'{{"{topic}": 2}}'))) == [(5, 8, "cap")]


def test_a_gap_that_is_no_row_yet_is_announced_too(archive: Archive) -> None:
    archive.server.configure(archive.topic, cap_records=1)
    archive.server.append(archive.topic, *range(3))
    archive.up_to(3)
    forget_gaps(archive.lake)
    assert gaps(rows(union(archive))) == [(1, 2, "cap")]


@pytest.mark.parametrize("direct", ["auto", "never"])
def test_what_is_trimmed_between_plan_and_read_comes_from_the_table(archive: Archive, direct: str) -> None:
    archive.server.append(archive.topic, *range(10))
    archive.up_to(2)
    reader = union(archive, direct=direct)
    tasks = reader.partitions()
    archive.up_to(7)
    found = rows(reader, tasks)
    assert sorted(seqs(found)) == list(range(1, 11))
    assert gaps(found) == []


def test_what_is_evicted_between_plan_and_read_comes_from_the_table_where_it_is_there(
    archive: Archive,
) -> None:
    server, topic = archive.server, archive.topic
    server.append(topic, *range(10))
    reader = union(archive, direct="never")
    tasks = reader.partitions()
    archive.up_to(4, trim=False)
    server.configure(topic, cap_records=4)
    found = rows(reader, tasks)
    assert seqs(found) == [1, 2, 3, 4, 7, 8, 9, 10]
    assert gaps(found) == [(5, 6, "cap")]


def test_a_topic_that_is_gone_is_read_from_the_table_as_far_as_that_goes(archive: Archive) -> None:
    archive.server.append(archive.topic, *range(6))
    reader = union(archive, direct="never")
    tasks = reader.partitions()
    archive.up_to(4, trim=False)
    archive.server.drop(archive.topic)
    found = rows(reader, tasks)
    assert seqs(found) == [1, 2, 3, 4]
    assert gaps(found) == [(5, 6, "topic_deleted")]


def test_lives_of_a_topic_are_not_mixed_up(archive: Archive) -> None:
    server, topic = archive.server, archive.topic
    server.append(topic, "old", "old", "old")
    archive.up_to(3)
    first = server.state(topic)["epoch"]
    server.drop(topic)
    server.append(topic, *range(4))
    archive.up_to(2)
    assert [row["data"] for row in rows(union(archive))] == ["0", "1", "2", "3"]
    # A reader that was in the old one is told, and gets all of the new one.
    at = f'{{"{topic}": {{"seq": 1, "epoch": {first}}}}}'
    found = rows(union(archive, startingOffsets=at))
    assert seqs(found) == [1, 2, 3, 4]
    assert [row["reason"] for row in found if row["reason"]] == ["recreated"]


def test_a_stream_goes_through_the_table_in_batches(archive: Archive) -> None:
    server, topic = archive.server, archive.topic
    server.append(topic, *range(10))
    archive.up_to(7)
    chosen = options(server, topic, streaming=True, archive=archive.table, startingOffsets="earliest")
    limited = spark_schema(chosen)
    stream = StreamReader(chosen, limited)
    at = stream.initialOffset()
    batches = []
    for _ in range(5):
        end = stream.latestOffset(at, _rows(3))
        tasks = stream.partitions(at, end)
        found = [row["seq"] for task in tasks for batch in stream.read(task) for row in batch.to_pylist()]
        batches.append(found)
        at = end
    assert batches == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10], []]
    # A batch that is read again by another run, when more of it has left the log.
    archive.up_to(9)
    again = StreamReader(chosen, limited)
    start, end = ({topic: {"seq": seq, "epoch": server.state(topic)["epoch"]}} for seq in (6, 9))
    tasks = again.partitions(start, end)
    assert [r["seq"] for task in tasks for batch in again.read(task) for r in batch.to_pylist()] == [7, 8, 9]
    pickle.dumps(again._archived)
    stream.stop()
    again.stop()


def _rows(count: int) -> Any:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(count)


def test_the_table_is_shared_out_over_tasks(archive: Archive) -> None:
    archive.server.append(archive.topic, *range(100))
    archive.up_to(60)
    tasks = union(archive, minPartitions="5").partitions()
    assert len(tasks) >= 5
    assert [one.archived_range is not None for task in tasks for one in task.ranges].count(True) >= 3


def test_mistakes_are_one_sentence(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r'"storage\.aws_region" is about "archive"'):
        options(server, "t", **{"storage.aws_region": "x"})
    with pytest.raises(OptionError, match='"startingTimestamp" looks at the log alone'):
        options(server, "t", archive="x", startingTimestamp="0")
    server.append("archived-mistakes", 1)
    chosen = options(server, "archived-mistakes", archive=str(tmp_path / "none"))
    with pytest.raises(OptionError, match=r'option "archive" is .*there is no table at'):
        BatchReader(chosen, spark_schema(chosen)).partitions()
    found = options(server, "t", archive="s3://b/t", **{"storage.aws_region": "x"})
    assert (found.archive, found.storage) == ("s3://b/t", {"aws_region": "x"})
    misspelled = options(server, "t", archive="s3://b/t", **{"storage.aws_regoin": "x"})
    with pytest.raises(OptionError, match=r'no option "storage\.aws_regoin", did you mean "aws_region"'):
        Archived(misspelled).look({})
    assert "aws_region" not in repr(found)


def test_what_is_trimmed_in_the_middle_of_a_scan_comes_from_the_table(archive: Archive) -> None:
    archive.server.append(archive.topic, *range(10))
    chosen = options(archive.server, archive.topic, archive=archive.table)
    plain = options(archive.server, archive.topic)
    schema = ReadSchema.of(spark_schema(chosen), chosen)
    tasks = BatchReader(plain, spark_schema(plain)).partitions()
    everything = pa.Table.from_batches(batch for task in tasks for batch in read_all(plain, task))
    archive.up_to(6)
    epoch = archive.server.state(archive.topic)["epoch"]
    wanted = SeqRange(archive.topic, StreamOffset(0, epoch), 10, epoch)
    with chosen.server.client() as client:
        reader = UnionReader(client, chosen, schema, LossPolicy("rows", schema), ScanFilter())
        # The scan had delivered three when the others went, and two more were deleted by somebody.
        scanned = [everything.slice(0, 3), everything.slice(6, 1), everything.slice(9, 1)]
        batches = (batch for part in scanned for batch in part.to_batches())
        found = [row["seq"] for batch in reader.read(wanted, batches) for row in batch.to_pylist()]
    assert found == [1, 2, 3, 4, 5, 6, 7, 10]


def test_what_a_filter_leaves_out_is_asked_for_once_a_batch(archive: Archive) -> None:
    archive.server.append(archive.topic, *({"data": n, "tag": f"t:{n % 2}"} for n in range(200)))
    archive.up_to(20)
    tap = Wiretap(archive.server.url)
    reader = union(archive, tag="t:1", url=tap.url)
    tasks = reader.partitions()
    planning = len(tap.requests)
    assert seqs(rows(reader, tasks)) == list(range(2, 201, 2))
    looks = [one for one in tap.requests[planning:] if one.startswith("GET") and archive.topic in one]
    tap.close()
    assert len(looks) <= 2, "the log was read in one batch; its end is asked for by itself"


def read_all(chosen: SourceOptions, task: TaskPartition) -> list[pa.RecordBatch]:
    return list(BatchReader(chosen, spark_schema(chosen)).read(task))


def test_spark_reads_both_as_one(
    archive: Archive, spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    archive.server.append(archive.topic, *range(10))
    archive.up_to(6)
    frame = read(archive.topic, archive=archive.table, minPartitions=4)
    assert sorted((row.seq, row.data) for row in frame.collect()) == [(n + 1, str(n)) for n in range(10)]
    streamed = (
        spark.readStream.format("topics")
        .options(url=archive.server.url, subscribe=archive.topic, archive=archive.table)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger="4")
        .load()
        .select("seq")
    )
    found: list[int] = []
    query = (
        streamed.writeStream.foreachBatch(lambda batch, _: found.extend(row.seq for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert sorted(found) == list(range(1, 11))
