"""The ledger: why seqs are missing, in pages and in buckets."""

from __future__ import annotations

import contextlib
import time
from itertools import pairwise
from typing import Any

import pytest

from pyspark_topics.client import Client as TopicsClient
from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import TopicHandle

KINDS = ("deleted", "cap", "ttl", "trim", "lost")


def ledger(topic: TopicHandle, query: str = "") -> Any:
    return topic.server.send("GET", f"{topic.path}/ledger{query}").ok()


def holey(topic: TopicHandle, count: int) -> None:
    """Every other record is deleted."""
    topic.records(*({"data": n, "tag": "x" if n % 2 else "y"} for n in range(count)))
    topic.server.send("POST", f"{topic.path}/delete", {"match": "y"}).ok()


def test_ranges_come_in_pages(new_topic: NewTopic) -> None:
    topic = new_topic()
    holey(topic, 2500)
    first = ledger(topic)
    assert len(first["ranges"]) == 100
    assert first["ranges"][0] == {"from": 1, "to": 1, "kind": "deleted"}
    assert (first["epoch"], first["head_seq"], first["earliest_seq"]) == (first["epoch"], 2500, 2)
    for size, expected in (("7", 7), ("0", 1), ("5000", 1000), ("x", 100), ("-3", 100)):
        assert len(ledger(topic, f"?page_size={size}")["ranges"]) == expected
    found, query = [], "?page_size=999"
    while True:
        page = ledger(topic, query)
        found += [(one["from"], one["to"], one["kind"]) for one in page["ranges"]]
        if "next_cursor" not in page:
            break
        query = f"?page_size=999&cursor={page['next_cursor']}"
    assert found == [(seq, seq, "deleted") for seq in range(1, 2500, 2)]
    with contextlib.closing(TopicsClient(topic.server.url)) as client:
        whole = client.ledger(topic.name)
    assert [(one["from"], one["to"], one["kind"]) for one in whole["ranges"]] == found
    assert "next_cursor" not in whole
    assert ledger(topic, "?cursor=")["ranges"] == first["ranges"]
    for wrong in ("nonsense", "!!!!", "YWZ0ZXI6eA", "YWZ0ZXI6"):
        topic.server.send("GET", f"{topic.path}/ledger?cursor={wrong}").refused(400, "invalid_request")


def test_a_topic_that_lost_nothing_has_an_empty_page(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(1, 2, 3)
    page = ledger(topic)
    assert page["ranges"] == []
    assert "next_cursor" not in page
    topic.server.send("GET", "/v0/topics/absent/ledger").refused(404, "topic_not_found")


def test_buckets_cover_everything_from_the_first_seq_to_the_head(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=600)
    holey(topic, 1000)
    topic.write(*range(400))
    for count in (1, 3, 7, 50, 2000):
        found = ledger(topic, f"?buckets={count}")
        assert "ranges" not in found
        buckets = found["buckets"]
        assert len(buckets) == min(count, 1400)
        assert (buckets[0]["from"], buckets[-1]["to"]) == (1, 1400)
        for left, right in pairwise(buckets):
            assert left["to"] + 1 == right["from"]
        for bucket in buckets:
            assert bucket.keys() == {"from", "to", "live", *KINDS}
            told = bucket["live"] + sum(bucket[kind] for kind in KINDS)
            assert told == bucket["to"] - bucket["from"] + 1
        state = topic.state()
        assert sum(bucket["live"] for bucket in buckets) == state["count"] == 600
        assert sum(bucket["deleted"] for bucket in buckets) == 300
        assert sum(bucket["cap"] for bucket in buckets) == 500
    # One a seq when there are fewer seqs than were asked for.
    small = new_topic(cap_records=2)
    small.write(1, 2, 3)
    assert ledger(small, "?buckets=2000")["buckets"] == [
        {"from": 1, "to": 1, "live": 0, "deleted": 0, "cap": 1, "ttl": 0, "trim": 0, "lost": 0},
        {"from": 2, "to": 2, "live": 1, "deleted": 0, "cap": 0, "ttl": 0, "trim": 0, "lost": 0},
        {"from": 3, "to": 3, "live": 1, "deleted": 0, "cap": 0, "ttl": 0, "trim": 0, "lost": 0},
    ]
    assert ledger(new_topic(), "?buckets=10")["buckets"] == []


def test_a_part_of_a_topic_is_told_as_it_is_in_the_whole(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=600)
    holey(topic, 1000)
    topic.write(*range(400))
    every = ledger(topic, "?buckets=2000")["buckets"]
    for first, last in ((1, 1400), (400, 410), (733, 1200), (1399, 1400), (7, 7)):
        assert ledger(topic, f"?buckets=2000&from={first}&to={last}")["buckets"] == every[first - 1 : last]
        missing = [(one["from"], kind) for one in every[first - 1 : last] for kind in KINDS if one[kind]]
        ranges = ledger(topic, f"?from={first}&to={last}&page_size=1000")["ranges"]
        told = [(seq, one["kind"]) for one in ranges for seq in range(one["from"], one["to"] + 1)]
        assert told == missing
        (whole,) = ledger(topic, f"?buckets=1&from={first}&to={last}")["buckets"]
        assert (whole["from"], whole["to"]) == (first, last)
        assert whole["live"] == last - first + 1 - len(missing)
    assert ledger(topic, "?buckets=9&from=1401")["buckets"] == []
    assert ledger(topic, "?buckets=9&from=1390&to=99999")["buckets"][-1]["to"] == 1400
    topic.server.send("GET", f"{topic.path}/ledger?from=x").refused(400, "invalid_request")


@pytest.mark.parametrize("wrong", ["0", "2001", "-1", "x", "1.5", "", "9" * 30])
def test_buckets_out_of_range_are_refused(new_topic: NewTopic, wrong: str) -> None:
    topic = new_topic()
    topic.server.send("GET", f"{topic.path}/ledger?buckets={wrong}").refused(400, "invalid_request")


@pytest.mark.parametrize("cleanly", [True, False])
def test_when_they_went_is_known_after_a_restart(boot: Boot, cleanly: bool) -> None:
    server = boot(TOPICS_SEGMENT_MAX_EVENTS="3")
    topic = server.topic("capped", cap_records=5)
    before_ms = time.time_ns() // 10**6
    topic.fill(8)
    topic.delete(seqs=[6])
    told = ledger(topic, "?times=true")["ranges"]
    assert [(one["from"], one["to"], one["kind"]) for one in told] == [(1, 3, "cap"), (6, 6, "deleted")]
    assert all(before_ms <= one["gone_after_ms"] <= one["gone_by_ms"] for one in told)
    lost = server.topic("memory", durability="ephemeral")
    lost.fill(2)
    server.restart(cleanly=cleanly)
    restarted = server.send("GET", "/v0/info").ok()["started_ms"]
    assert ledger(topic, "?times=true")["ranges"] == told
    (gone,) = ledger(lost, "?times=true")["ranges"]
    assert (gone["from"], gone["to"], gone["kind"]) == (1, 2, "lost")
    assert "gone_after_ms" not in gone
    assert told[0]["gone_by_ms"] <= gone["gone_by_ms"] <= restarted + 60_000
