"""`replay`: from the lake back into a topic, in order, once."""

from __future__ import annotations

import pytest

from pyspark_topics.pipelines import Archive, Replay
from tests.spark.pipelines.running import Pipelines, killed_at
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)


def test_a_topic_comes_back_with_its_losses(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.configure(topic, cap_records=3)
    server.append(topic, *({"data": n, "tag": f"t{n}", "node": "w", "meta": {"n": n}} for n in range(5)))
    at = server.diff(topic)[0][0]["$ts"]
    pipelines.run(Archive(topics=[topic], table=table))
    server.drop(topic)
    pipelines.run(Replay(table=table, topic=topic, into=topic), "back")
    records, _ = server.diff(topic)
    assert [(r["data"], r["$tag"], r["$node"], r["meta"]) for r in records[:3]] == [
        (n, f"t{n}", "w", {"n": n, "event_ts": at}) for n in (2, 3, 4)
    ]
    lost = {"kind": "tombstone", "topic": topic, "gap_from": 1, "gap_to": 2, "reason": "cap"}
    assert records[3]["data"] == lost
    # Again: it is done.
    assert pipelines.run(Replay(table=table, topic=topic, into=topic), "back")["records"] == 0
    assert server.state(topic)["head_seq"] == 4


def test_a_part_by_seq_or_by_time(server: Server, topic: str, pipelines: Pipelines, table: str) -> None:
    server.append(topic, *range(4))
    server.append(topic, *range(4, 6))
    pipelines.run(Archive(topics=[topic], table=table))
    by_seq = Replay(table=table, topic=topic, into=f"{topic}.seq", from_seq=2, to_seq=4)
    assert pipelines.run(by_seq, "seq")["records"] == 3
    assert server.data(f"{topic}.seq") == [1, 2, 3]
    moment = server.diff(topic)[0][4]["$ts"]
    since = Replay(table=table, topic=topic, into=f"{topic}.ts", since=str(moment))
    pipelines.run(since, "ts")
    assert server.data(f"{topic}.ts") == [r["data"] for r in server.diff(topic)[0] if r["$ts"] >= moment]
    until = Replay(table=table, topic=topic, into=f"{topic}.until", until=str(moment))
    pipelines.run(until, "until")
    before = [r["data"] for r in server.diff(topic)[0] if r["$ts"] < moment]
    assert (server.data(f"{topic}.until") if before else []) == before


def test_one_killed_between_commit_and_note_goes_on(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, *range(2500))
    pipelines.run(Archive(topics=[topic], table=table))
    # A rate makes small steps.
    settings = Replay(table=table, topic=topic, into=f"{topic}.out", rate=1000)
    assert pipelines.failure(settings, step=killed_at(2)) == "killed"
    assert server.state(f"{topic}.out")["head_seq"] == 1999
    assert pipelines.run(settings)["finished"]
    assert server.data(f"{topic}.out") == list(range(2500))


def test_mistakes_are_explained(server: Server, topic: str, pipelines: Pipelines, table: str) -> None:
    assert "there is no table at" in pipelines.failure(Replay(table=table, topic=topic, into="x"))
    server.append(topic, 1)
    pipelines.run(Archive(topics=[topic], table=table))
    assert "holds nothing of topic" in pipelines.failure(Replay(table=table, topic="other", into="x"))
    assert "nothing of epoch 999" in pipelines.failure(Replay(table=table, topic=topic, into="x", epoch=999))
