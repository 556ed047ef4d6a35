"""`spark.read.format("topics")` against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.server import Server

Load = Callable[..., DataFrame]


def seqs(frame: DataFrame) -> list[int]:
    return [row.seq for row in frame.collect() if row.seq is not None]


def gaps(frame: DataFrame) -> list[tuple[int, int, str]]:
    return [(row.gap_from, row.gap_to, row.reason) for row in frame.collect() if row.kind == "tombstone"]


def failure(frame: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        frame()
    return str(caught.value)


def test_a_topic_is_a_table(server: Server, topic: str, read: Load) -> None:
    server.append(
        topic,
        {"data": {"cm": 412, "who": "é"}, "tag": "tide", "node": "buoy-3", "meta": {"unit": "cm"}},
        {"data": None},
    )
    first, second = read(topic).orderBy("seq").collect()
    assert (first.topic, first.seq, first.node, first.tag, first.kind) == (
        topic,
        1,
        "buoy-3",
        "tide",
        "record",
    )
    assert json.loads(first.data) == {"cm": 412, "who": "é"}
    assert json.loads(first.meta) == {"unit": "cm"}
    assert (second.seq, second.data, second.meta, second.node, second.tag) == (2, "null", None, None, None)
    (stored, _), _ = server.diff(topic)
    assert int(first.ts.timestamp() * 1000) == stored["$ts"]


def test_loss_is_a_row_with_the_exact_range_before_the_records(
    server: Server, topic: str, read: Load
) -> None:
    server.configure(topic, cap_records=4)
    server.append(topic, *range(9))
    rows = read(topic).collect()
    assert [(row.kind, row.seq, row.gap_from, row.gap_to, row.reason) for row in rows] == [
        ("tombstone", None, 1, 5, "cap"),
        *[("record", seq, None, None, None) for seq in (6, 7, 8, 9)],
    ]


def test_deletes_and_filtered_nodes_are_not_loss(server: Server, topic: str, read: Load) -> None:
    server.append(
        topic, *({"data": n, "tag": str(n), "node": "own" if n == 3 else "other"} for n in range(6))
    )
    server.delete(topic, before_seq=2)
    server.delete(topic, match="4")
    frame = read(topic, node="own", loss="fail")
    assert seqs(frame) == [2, 3, 6]


def test_loss_can_stop_the_read_and_says_how_to_go_on(server: Server, topic: str, read: Load) -> None:
    server.configure(topic, cap_records=2)
    server.append(topic, *range(5))
    message = failure(read(topic, loss="fail").collect)
    assert f'topic "{topic}" lost seqs 1 to 3 (cap)' in message
    assert f'startingOffsets = {{"{topic}": 3}}' in message
    assert seqs(read(topic, loss="fail", startingOffsets=json.dumps({topic: 3}))) == [4, 5]
    assert seqs(read(topic, loss="ignore")) == [4, 5]


def test_many_tasks_return_the_same_rows_as_diff(server: Server, topic: str, read: Load) -> None:
    server.configure(topic, cap_records=700)
    for start in range(0, 1000, 100):
        server.append(topic, *({"data": n, "tag": f"t{n % 7}"} for n in range(start, start + 100)))
    server.delete(topic, match="t3")
    records, lost = server.diff(topic)
    frame = read(topic, minPartitions=5)
    assert frame.rdd.getNumPartitions() >= 5
    rows = frame.orderBy("seq").collect()
    assert [(row.seq, row.tag, row.data) for row in rows if row.kind == "record"] == [
        (record["$seq"], record["$tag"], str(record["data"])) for record in records
    ]
    assert gaps(frame) == [(gap["gap_from"], gap["gap_to"], gap["reason"]) for gap in lost]


def test_ranges_by_seq(server: Server, topic: str, read: Load) -> None:
    server.append(topic, *range(9))
    bounds = {"startingOffsets": json.dumps({topic: 3}), "endingOffsets": json.dumps({topic: 6})}
    assert seqs(read(topic, **bounds)) == [4, 5, 6]
    assert seqs(read(topic, endingOffsets=json.dumps({topic: 600}))) == list(range(1, 10))
    assert "ends at 3, before its start 6" in failure(
        read(topic, startingOffsets=json.dumps({topic: 6}), endingOffsets=json.dumps({topic: 3})).collect
    )


def test_ranges_by_time(server: Server, topic: str, read: Load) -> None:
    for n in range(4):
        server.append(topic, n)
        moment = server.diff(topic)[0][-1]["$ts"]
        while server.ask("GET", f"/v0/topics/{topic}")["last_read_ts"] <= moment:
            pass  # the next record is to have a later time
    times = [record["$ts"] for record in server.diff(topic)[0]]
    assert seqs(read(topic, startingTimestamp=times[1], endingTimestamp=times[3])) == [2, 3]
    assert seqs(read(topic, startingTimestamp=times[3] + 10_000)) == []


def test_a_time_in_a_topic_that_lost_everything_begins_with_the_loss(
    server: Server, topic: str, read: Load
) -> None:
    server.configure(topic, ttl_ms=1)
    server.append(topic, 1, 2)
    while server.state(topic)["count"]:
        time.sleep(0.01)
    rows = read(topic, startingTimestamp="2020-01-01").collect()
    assert [(row.gap_from, row.gap_to, row.reason) for row in rows] == [(1, 2, "ttl")]


def test_ranges_by_tag(server: Server, topic: str, read: Load) -> None:
    server.append(topic, *({"data": n, "tag": tag} for n, tag in enumerate(["a", "ab", "b", "a"])))
    assert seqs(read(topic, tag="a")) == [1, 4]
    assert seqs(read(topic, tag="a*")) == [1, 2, 4]


def test_several_topics_and_patterns(spark: SparkSession, server: Server, topic: str, read: Load) -> None:
    for suffix in ("x", "y", "z"):
        server.append(f"{topic}.{suffix}", suffix)
    both = read(f"{topic}.x,{topic}.y").collect()
    assert sorted((row.topic, row.data) for row in both) == [(f"{topic}.x", '"x"'), (f"{topic}.y", '"y"')]
    matched = (
        spark.read.format("topics")
        .option("url", server.url)
        .option("subscribePattern", f"{topic}.[yz]")
        .load()
    )
    assert sorted(row.data for row in matched.collect()) == ['"y"', '"z"']


def test_columns_narrow_the_schema(server: Server, topic: str, read: Load) -> None:
    server.append(topic, {"data": 1, "tag": "t"}, {"data": 2})
    frame = read(topic, columns="tag,data", loss="fail")
    assert frame.columns == ["tag", "data"]
    assert [tuple(row) for row in frame.collect()] == [("t", "1"), (None, "2")]


def test_filters_are_pushed_down_and_change_nothing(server: Server, topic: str, read: Load) -> None:
    server.append(topic, *({"data": n, "tag": f"t{n % 3}", "node": f"n{n % 2}"} for n in range(20)))
    times = [record["$ts"] for record in server.diff(topic)[0]]
    frame = read(topic, pushdown="true")
    for condition, expected in (
        ("seq > 5 AND seq <= 9", [6, 7, 8, 9]),
        ("tag = 't1' AND seq < 9", [2, 5, 8]),
        ("tag LIKE 't%' AND node <> 'n0' AND seq < 5", [2, 4]),
        (f"ts >= timestamp_millis({times[0]}) AND ts <= timestamp_millis({times[-1]})", list(range(1, 21))),
        (f"ts > timestamp_millis({times[-1]})", []),
    ):
        assert seqs(frame.where(condition)) == expected, condition


def test_an_empty_topic_is_an_empty_table(server: Server, topic: str, read: Load) -> None:
    server.configure(topic)
    assert read(topic).collect() == []


def test_a_start_in_an_earlier_life_of_the_topic_is_announced(server: Server, topic: str, read: Load) -> None:
    server.append(topic, 1, 2, 3)
    old = server.state(topic)["epoch"]
    server.drop(topic)
    server.append(topic, *"abcde")
    start = json.dumps({topic: {"seq": 3, "epoch": old}})
    rows = read(topic, startingOffsets=start).collect()
    assert [(row.kind, row.seq, row.reason) for row in rows] == [
        ("tombstone", None, "recreated"),
        *[("record", seq, None) for seq in (1, 2, 3, 4, 5)],
    ]
    assert "(recreated), and begins anew" in failure(read(topic, startingOffsets=start, loss="fail").collect)


def test_an_end_in_another_life_of_the_topic_is_refused(server: Server, topic: str, read: Load) -> None:
    server.append(topic, 1, 2, 3)
    end = {"seq": 2, "epoch": server.state(topic)["epoch"]}
    assert seqs(read(topic, endingOffsets=json.dumps({topic: end}))) == [1, 2]
    server.drop(topic)
    server.append(topic, *"abc")
    assert "deleted and made again" in failure(read(topic, endingOffsets=json.dumps({topic: end})).collect)


def test_a_batch_from_above_the_head_names_both_numbers(server: Server, topic: str, read: Load) -> None:
    server.append(topic, 1, 2)
    message = failure(read(topic, startingOffsets=json.dumps({topic: 90})).collect)
    assert f'"startingOffsets" is 90 for topic "{topic}", whose head is 2' in message
    # That of an earlier life is no mistake.
    earlier = {"seq": 90, "epoch": server.state(topic)["epoch"]}
    server.drop(topic)
    server.append(topic, 1, 2)
    frame = read(topic, startingOffsets=json.dumps({topic: earlier}))
    assert [row.reason for row in frame.collect()] == ["recreated", None, None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribee": "x"}, 'did you mean "subscribe"'),
        ({"columns": "payload"}, 'names "payload"'),
        ({"maxOffsetsPerTrigger": "5"}, "for streaming reads"),
    ],
)
def test_mistakes_are_explained(topic: str, read: Load, options: dict[str, str], expected: str) -> None:
    assert expected in failure(lambda: read(topic, **options).collect())


def test_a_missing_topic_is_named(topic: str, read: Load) -> None:
    assert f'names "{topic}", and there is no such topic' in failure(read(topic).collect)
