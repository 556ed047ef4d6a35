"""`archive`: everything in the lake once, gaps beside it, and the log trimmed only afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pyspark_topics.offsets import StreamOffset
from pyspark_topics.options import ServerOptions as Address
from pyspark_topics.pipelines import Archive, compaction
from pyspark_topics.pipelines.context import Outcome
from pyspark_topics.pipelines.lake import Gap, Lake
from pyspark_topics.pipelines.parquet import write_files
from pyspark_topics.pipelines.runner import Runner
from tests.spark.pipelines.lakes import forget_gaps
from tests.spark.pipelines.running import Notes, Pipelines, killed_at
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)


def rows(spark: SparkSession, table: str) -> list[Any]:
    """As users would read it back."""
    frame = spark.read.parquet(*(f"{table}/{one.path}" for one in Lake(table).files()))
    return frame.orderBy("topic", "epoch", "seq").collect()


def seqs(spark: SparkSession, table: str) -> list[int]:
    return [row.seq for row in rows(spark, table)]


def test_records_arrive_with_everything_they_have(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    record = {"data": {"sku": "x"}, "tag": "user:7", "node": "web", "meta": {"k": "v"}}
    server.append(topic, record, 2)
    assert pipelines.run(Archive(topics=[topic], table=table))["records"] == 2
    first, second = rows(spark, table)
    stored = server.diff(topic)[0]
    assert (first.topic, first.epoch, first.seq) == (topic, server.state(topic)["epoch"], 1)
    assert (first.data, first.tag, first.node, first.meta) == ('{"sku":"x"}', "user:7", "web", '{"k":"v"}')
    assert int(first.ts.timestamp() * 1000) == stored[0]["$ts"]
    assert (second.seq, second.data, second.tag, second.node, second.meta) == (2, "2", None, None, None)


def test_an_archive_goes_on_where_its_table_ends(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    archive = Archive(topics=[topic], table=table)
    server.append(topic, *range(5))
    pipelines.run(archive)
    forgotten, recent = Path(table, "part-forgotten.parquet"), Path(table, "part-recent.parquet")
    for orphan, days in ((forgotten, 8), (recent, 6)):
        orphan.write_bytes(b"of a driver that was killed")
        os.utime(orphan, (time.time() - days * 86400,) * 2)
    assert pipelines.run(archive)["records"] == 0
    assert not forgotten.exists(), "looked after also by a run that has nothing to do"
    assert recent.exists()
    server.append(topic, *range(3))
    # Nothing but the table says where it was: another name has other notes, and goes on all the same.
    assert pipelines.run(archive, "another-name")["records"] == 3
    assert seqs(spark, table) == list(range(1, 9))


def test_gaps_are_rows_of_the_table_beside_it(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.configure(topic, cap_records=2)
    server.append(topic, *range(5))
    pipelines.run(Archive(topics=[topic], table=table))
    server.append(topic, *range(4))
    pipelines.run(Archive(topics=[topic], table=table))
    epoch = server.state(topic)["epoch"]
    assert seqs(spark, table) == [4, 5, 8, 9]
    assert Lake(table).gaps() == [Gap(topic, epoch, 1, 3, "cap"), Gap(topic, epoch, 6, 7, "cap")]
    found = spark.read.parquet(*Lake(table).gaps_table.file_uris()).orderBy("gap_from").first()
    assert (found.topic, found.gap_from, found.gap_to, found.reason) == (topic, 1, 3, "cap")


def test_each_life_of_a_topic_is_kept_apart(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    archive = Archive(topics=[topic], table=table)
    server.append(topic, *range(3))
    first = server.state(topic)["epoch"]
    pipelines.run(archive)
    server.drop(topic)
    server.append(topic, *range(5))
    second = server.state(topic)["epoch"]
    pipelines.run(archive)
    assert [(row.epoch, row.seq) for row in rows(spark, table)] == [
        *((first, seq) for seq in (1, 2, 3)),
        *((second, seq) for seq in (1, 2, 3, 4, 5)),
    ]
    assert Lake(table).gaps() == [Gap(topic, first, 4, None, "recreated")]
    assert Lake(table).position(topic) == StreamOffset(5, second)
    assert Lake(table).archived(topic, first) == 3


def test_a_guarded_server_gets_the_key(
    spark: SparkSession, start_server: Callable[..., Server], tmp_path: Path, table: str
) -> None:
    guarded = start_server(TOPICS_API_KEYS="secret:read+write+delete")
    guarded.http.headers["Authorization"] = "Bearer secret"
    guarded.append("orders", 1, 2)
    notes = Notes()

    def run(key: str | None) -> Outcome:
        server = Address(guarded.url, key)
        runner = Runner(server, tmp_path / "state", lambda: spark, notes, once=True)
        return runner.run({"lake": Archive(topics=["orders"], table=table, trim=True)})["lake"]

    assert "give a valid key" in run("wrong").facts["error"]
    assert run("secret").ok
    assert seqs(spark, table) == [1, 2]
    assert guarded.state("orders")["earliest_seq"] == 3


def test_topics_by_pattern_share_a_table(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(f"{topic}.a", 1, 2)
    server.append(f"{topic}.b", 3)
    pipelines.run(Archive(pattern=f"{topic}[.][ab]", table=table))
    assert [(row.topic, row.seq) for row in rows(spark, table)] == [
        (f"{topic}.a", 1),
        (f"{topic}.a", 2),
        (f"{topic}.b", 1),
    ]


def test_gaps_of_a_commit_that_a_crash_left_alone_become_rows_later(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.configure(topic, cap_records=1)
    server.append(topic, *range(3))
    pipelines.run(Archive(topics=[topic], table=table))
    forget_gaps(Lake(table))
    assert Lake(table).gaps() == []
    pipelines.run(Archive(topics=[topic], table=table))
    pipelines.run(Archive(topics=[topic], table=table))
    assert Lake(table).gaps() == [Gap(topic, server.state(topic)["epoch"], 1, 2, "cap")]


def test_what_is_in_the_lake_is_trimmed_and_nothing_else(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, *range(5))
    pipelines.run(Archive(topics=[topic], table=table, trim=True))
    assert seqs(spark, table) == [1, 2, 3, 4, 5]
    assert server.state(topic)["earliest_seq"] == 6
    assert server.diff(topic) == ([], [])


def test_what_the_table_does_not_give_back_is_not_trimmed(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, {"data": 1, "tag": "a"}, 2, 3)
    pipelines.run(Archive(topics=[topic], table=table))
    lake = Lake(table)
    (one,) = lake.files()
    rows = pq.read_table(f"{table}/{one.path}")
    other = rows.set_column(rows.schema.get_field_index("data"), "data", pa.array(["1", "2", "9"]))
    lake.replace([one], list(write_files(other.to_batches(), lake.location)))
    message = pipelines.failure(Archive(topics=[topic], table=table, trim=True))
    assert f'does not give back seq 3 of topic "{topic}"' in message
    assert server.state(topic)["earliest_seq"] == 1


def test_nothing_is_trimmed_without_a_commit(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, *range(5))
    archive = Archive(topics=[topic], table=table, trim=True)
    assert pipelines.failure(archive, step=killed_at(1, "written")) == "killed"
    assert server.state(topic)["earliest_seq"] == 1


def test_two_archives_of_a_topic_into_a_table_collide_instead_of_writing_twice(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, *range(5))
    pipelines.run(Archive(topics=[topic], table=table))
    server.append(topic, 5)
    slow = Lake(table)
    pipelines.run(Archive(topics=[topic], table=table))
    epoch = server.state(topic)["epoch"]
    with pytest.raises(Exception, match="something else wrote to"):
        slow.commit([], {topic: StreamOffset(5, epoch)}, {topic: StreamOffset(6, epoch)}, [])
    assert seqs(spark, table) == list(range(1, 7))


def once(act: Callable[[], object]) -> Callable[[str, str], None]:
    """Act between the files and the commit of the first batch of an archive."""
    left = [act]

    def step(*_: str) -> None:
        if left:
            left.pop()()

    return step


def test_a_batch_that_collides_with_a_rewrite_is_read_again(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    """As when an erasure comes between reading and committing."""
    server.append(topic, *range(5))
    pipelines.run(Archive(topics=[topic], table=table))
    server.append(topic, 5, 6)

    def meanwhile() -> None:
        server.delete(topic, before_seq=7)
        Lake(table).replace([], [], standing={topic: StreamOffset(5, server.state(topic)["epoch"])})

    assert pipelines.run(Archive(topics=[topic], table=table), step=once(meanwhile))["records"] == 1
    assert seqs(spark, table) == [1, 2, 3, 4, 5, 7]


def test_two_archives_that_read_at_the_same_time_write_every_record_once(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    archive = Archive(topics=[topic], table=table)
    server.append(topic, *range(5))
    pipelines.run(archive)
    server.append(topic, 5, 6)
    assert pipelines.run(archive, step=once(lambda: pipelines.run(archive, "other")))["records"] == 0
    assert seqs(spark, table) == [1, 2, 3, 4, 5, 6, 7]
    assert len(list(Path(table).glob("*.parquet"))) == len(Lake(table).files())


def test_an_archive_follows_and_its_lag_reaches_zero(
    spark: SparkSession,
    server: Server,
    topic: str,
    pipelines: Pipelines,
    table: str,
    until: Callable[..., None],
) -> None:
    with pipelines.following({"lake": Archive(topics=[topic], table=table, every_s=0)}):
        server.append(topic, *range(3))  # the topic did not exist before
        until(lambda: _lag(server, topic) == 0)
        server.append(topic, *range(3))
        until(lambda: _lag(server, topic) == 0)
    assert seqs(spark, table) == [1, 2, 3, 4, 5, 6]
    assert pipelines.notes.last["lake"].state == "stopped"


def test_an_archive_names_or_waits_for_a_topic_that_is_not_there(
    server: Server, topic: str, pipelines: Pipelines, table: str, until: Callable[..., None]
) -> None:
    server.append(f"{topic}.orders", 1)
    archive = Archive(topics=[f"{topic}.ordres"], table=table)
    says = f'there is no topic "{topic}.ordres", did you mean "{topic}.orders"'
    assert pipelines.failure(archive) == says
    assert not Path(table).parent.exists(), "what is refused leaves nothing behind"
    pipelines.notes.last.clear()
    with pipelines.following({"lake": archive}):
        until(lambda: pipelines.notes.last["lake"].state == "waiting" if pipelines.notes.last else False)
        assert f'for topic "{topic}.ordres", which is not there yet' in pipelines.notes.last["lake"].note
        server.append(f"{topic}.ordres", 1)
        until(lambda: pipelines.notes.last["lake"].state == "running")


def _lag(server: Server, topic: str) -> int | None:
    cursors = server.ask("GET", f"/v0/topics/{topic}/cursors")["cursors"]
    return cursors[0]["lag"] if cursors else None


def test_a_folder_of_something_else_is_refused(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, 1)
    write_deltalake(table, pa.table({"x": [1]}))
    archive = Archive(topics=[topic], table=table, trim=True)
    assert 'it has no column "topic"' in pipelines.failure(archive)
    assert DeltaTable(table).version() == 0
    assert server.state(topic)["earliest_seq"] == 1


def test_small_files_are_merged_as_they_come_up(
    spark: SparkSession, server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    archive = Archive(topics=[topic], table=table)
    for number in range(compaction.MERGED_AT_ONCE):
        server.append(topic, number)
        pipelines.run(archive)
    assert len(Lake(table).files()) == 1
    assert seqs(spark, table) == list(range(1, 9))
    (merged,) = Lake(table).files()
    assert (merged.rows, merged.low["seq"], merged.high["seq"]) == (8, 1, 8)
