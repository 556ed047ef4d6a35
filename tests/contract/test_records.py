"""Records by GET: the page of a diff with a tag and a time to choose by, and single records."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import TopicHandle, checked_page
from tests.support import Answer


def ask(topic: TopicHandle, **query: Any) -> Answer:
    return topic.server.send("GET", f"{topic.path}/records?{urlencode(query, doseq=True)}")


def page(topic: TopicHandle, **query: Any) -> Any:
    return checked_page(ask(topic, **query).ok(), query.get("from_seq", 0))


def seqs(topic: TopicHandle, **query: Any) -> list[int]:
    return [record["$seq"] for record in page(topic, **query)["records"]]


def one(topic: TopicHandle, seq: Any) -> Answer:
    return topic.server.send("GET", f"{topic.path}/records/{seq}")


def untimed(answer: Any) -> Any:
    return {key: value for key, value in answer.items() if key != "performance"}


@pytest.fixture
def tagged(new_topic: NewTopic) -> TopicHandle:
    """Seqs 1 to 6: a:1, b:1, none, a:2, [x], a:1 again; written by three nodes."""
    topic = new_topic()
    tags = ("a:1", "b:1", None, "a:2", "[x]", "a:1")
    records = [{"data": n, "node": f"n{n % 3}", "meta": {"n": n}} for n in range(6)]
    for record, tag in zip(records, tags, strict=True):
        topic.records(record | ({} if tag is None else {"tag": tag}))
    return topic


def test_a_page_is_the_one_of_diff(tagged: TopicHandle) -> None:
    for query in (
        {},
        {"from_seq": 2, "limit": 2},
        {"include_tags": True, "include_meta": False},
        {"node": "n1"},
        {"node": ["n0", "n2"]},
    ):
        asked = {
            key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()
        }
        assert untimed(page(tagged, **asked)) == untimed(tagged.diff(**query))  # type: ignore[arg-type]


def test_limits_are_those_of_diff(tagged: TopicHandle) -> None:
    assert len(seqs(tagged, limit=0)) == 6
    assert len(seqs(tagged, limit=10**30)) == 6
    for wrong in ({"limit": -1}, {"from_seq": "x"}, {"epoch": ""}, {"since": "1.5"}, {"from_seq": 2**64}):
        ask(tagged, **wrong).refused(400, "invalid_request")
    detail = ask(tagged, form_seq=1).refused(400, "invalid_request")
    assert detail["did_you_mean"] == {"form_seq": "from_seq"}


def test_a_tag_is_chosen_as_for_a_delete_and_the_rest_passed_in_silence(tagged: TopicHandle) -> None:
    assert seqs(tagged, tag="a:1") == [1, 6]
    assert seqs(tagged, tag="a:*") == [1, 4, 6]
    assert seqs(tagged, tag="*") == [1, 2, 4, 5, 6]
    assert seqs(tagged, tag="[x]") == [5]
    assert seqs(tagged, tag=json.dumps(["tag", "Eq", "a:*"])) == []
    assert seqs(tagged, tag=json.dumps(["tag", "Glob", "b*"])) == [2]
    ask(tagged, tag=json.dumps(["tag", "Glob", "b"])).refused(400, "invalid_request")
    found = page(tagged, tag="b*")
    assert (found["next_from_seq"], found["caught_up"], found["tombstone"]) == (6, True, None)
    found = page(tagged, tag="a:*", limit=1, from_seq=1)
    assert ([r["$seq"] for r in found["records"]], found["next_from_seq"]) == ([4], 4)
    assert seqs(tagged, tag="a:*", node="n0") == [6]


def test_time_is_chosen_from_and_including_up_to_and_excluding(new_topic: NewTopic) -> None:
    topic = new_topic()
    while len({record["$ts"] for record in topic.diff()["records"]}) < 3:
        topic.fill(1)
    records = topic.diff()["records"]
    times = sorted({record["$ts"] for record in records})
    assert seqs(topic, since=times[1]) == [r["$seq"] for r in records if r["$ts"] >= times[1]]
    assert seqs(topic, until=times[1]) == [r["$seq"] for r in records if r["$ts"] < times[1]]
    inside = [r["$seq"] for r in records if times[1] <= r["$ts"] < times[2]]
    assert seqs(topic, since=times[1], until=times[2]) == inside
    assert page(topic, since=times[2] + 10**6)["caught_up"]


def test_loss_is_announced_whatever_was_chosen(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3)
    topic.fill(8)
    for query in ({"tag": "none"}, {"since": 2**50}, {"until": 1}, {"node": "n"}):
        found = page(topic, **query)
        gap = found["tombstone"]
        assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (1, 5, "cap")
        assert found["next_from_seq"] == 8


def test_the_last_records(tagged: TopicHandle, new_topic: NewTopic) -> None:
    assert seqs(tagged, last=2) == [5, 6]
    assert seqs(tagged, last=100) == [1, 2, 3, 4, 5, 6]
    assert seqs(tagged, last=0) == []
    assert seqs(tagged, last=2, tag="a:1") == [1, 6]
    found = page(tagged, last=1, tag="b:*")
    assert ([r["$seq"] for r in found["records"]], found["caught_up"]) == ([2], True)
    assert seqs(tagged, last=2, node=["n0", "n2"]) == [2, 5]
    assert seqs(tagged, last=4, limit=2) == [3, 4]
    tagged.delete(seqs=[5, 6])
    assert seqs(tagged, last=2) == [3, 4]
    capped = new_topic(cap_records=3)
    capped.fill(8)
    found = page(capped, last=10)
    assert ([r["$seq"] for r in found["records"]], found["tombstone"]) == ([6, 7, 8], None)
    for cursor, last, gap in ((0, 10, (1, 5)), (0, 2, (1, 5)), (3, 1, (4, 5)), (4, 0, (5, 5))):
        found = page(capped, last=last, from_seq=cursor)
        assert [r["$seq"] for r in found["records"]] == [6, 7, 8][3 - min(last, 3) :]
        assert (found["tombstone"]["gap_from"], found["tombstone"]["gap_to"]) == gap
        assert found["tombstone"]["reason"] == "cap"
    assert page(capped, last=1, from_seq=5)["tombstone"] is None
    assert page(new_topic(), last=5)["records"] == []


def test_an_epoch_of_another_life_is_told(tagged: TopicHandle) -> None:
    epoch = page(tagged)["epoch"]
    assert page(tagged, epoch=epoch, from_seq=4)["tombstone"] is None
    gap = page(tagged, epoch=epoch + 1, from_seq=4)["tombstone"]
    assert (gap["reason"], gap["previous_epoch"]) == ("recreated", epoch + 1)


def test_it_waits_for_a_record(new_topic: NewTopic) -> None:
    topic = new_topic()
    client = topic.server.client()
    client._connection.request("GET", f"{topic.path}/records?wait_ms=30000")
    while not topic.state()["last_read_ts"]:
        pass
    topic.write("here")
    found = Answer.read(client._connection).ok()
    client.close()
    assert [record["data"] for record in found["records"]] == ["here"]


def test_a_topic_that_is_not_there(unborn: TopicHandle) -> None:
    ask(unborn).refused(404, "topic_not_found")
    ask(unborn, last=3).refused(404, "topic_not_found")
    one(unborn, 1).refused(404, "topic_not_found")


def test_a_single_record(tagged: TopicHandle) -> None:
    answer = one(tagged, 1).ok()
    record = answer["record"]
    assert set(answer) == {"topic", "epoch", "record", "performance"}
    assert (answer["topic"], answer["epoch"]) == (tagged.name, tagged.state()["epoch"])
    assert record == tagged.diff(limit=1, include_tags=True)["records"][0]
    assert (record["$tag"], record["$node"], record["meta"]) == ("a:1", "n0", {"n": 0})
    assert "$tag" not in one(tagged, 3).ok()["record"]
    for seq in (0, 7, 2**64 - 1):
        one(tagged, seq).refused(404, "record_not_found")
    for wrong in ("x", "-1", quote("1 "), 2**64):
        one(tagged, wrong).refused(400, "invalid_request")


def why(topic: TopicHandle, seq: int) -> str:
    detail = one(topic, seq).refused(410, "record_gone")
    assert (detail["topic"], detail["seq"]) == (topic.name, seq)
    return str(detail["why"])


def test_a_record_that_is_gone_says_why(tagged: TopicHandle, new_topic: NewTopic) -> None:
    tagged.delete(seqs=[4])
    assert why(tagged, 4) == "deleted"
    tagged.delete(before_seq=3)
    assert [why(tagged, seq) for seq in (1, 2)] == ["deleted", "deleted"]
    capped = new_topic(cap_records=2)
    capped.fill(3)
    capped.delete(seqs=[2])
    assert [why(capped, seq) for seq in (1, 2)] == ["cap", "deleted"]
    assert one(capped, 3).status == 200
    aged = new_topic(ttl_ms=1)
    aged.write(1)
    while aged.state()["count"]:
        pass
    assert why(aged, 1) == "ttl"


def test_records_lost_in_a_restart_say_so(boot: Boot) -> None:
    server = boot()
    topic = server.topic("t", durability="ephemeral")
    topic.fill(2)
    server.restart(cleanly=True)
    topic.fill(1)
    assert [why(topic, seq) for seq in (1, 2)] == ["lost", "lost"]
    assert one(topic, 3).status == 200
