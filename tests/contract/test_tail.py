"""Event streams without a session: where they begin, what their ids say, and which topics come in later."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, told
from tests.http.streaming import EventReader, Frame


def tail(streams: Streams, server: Server, *topics: str, last_id: str = "", **query: Any) -> EventReader:
    asked = [("topic", topic) for topic in topics] + list(query.items())
    headers = {"Last-Event-ID": last_id} if last_id else {}
    return streams.events(server, f"/v0/tail?{urlencode(asked, doseq=True)}", **headers)


def until_level(reader: EventReader) -> list[tuple[str, Any]]:
    return told(reader.until("caught-up"))


def frames(reader: EventReader, count: int) -> list[Frame]:
    found = [reader.frame() for _ in range(count)]
    assert None not in found
    return [frame for frame in found if frame is not None]


def position(frame: Frame) -> Any:
    assert frame.id is not None
    return json.loads(base64.urlsafe_b64decode(frame.id + "=" * (-len(frame.id) % 4)))


def refused(server: Server, query: str) -> Any:
    return server.send("GET", "/v0/tail" + query).refused(400, "invalid_request")


@pytest.fixture
def five(new_topic: NewTopic) -> TopicHandle:
    topic = new_topic()
    topic.fill(5)
    return topic


def test_where_a_tail_begins(server: Server, five: TopicHandle, streams: Streams) -> None:
    name, epoch = five.name, five.state()["epoch"]
    for start, seqs in (("", []), ("@0", [1, 2, 3, 4, 5]), ("@3", [4, 5]), ("@-2", [4, 5]), ("@-0", [])):
        shown = [("record", seqs)] if seqs else []
        assert until_level(tail(streams, server, name + start)) == [*shown, ("caught-up", 5)]
    assert until_level(tail(streams, server, f"{name}@-100"))[0] == ("record", [1, 2, 3, 4, 5])
    assert until_level(tail(streams, server, f"{name}@3~{epoch}"))[0] == ("record", [4, 5])
    gap, records, _ = tail(streams, server, f"{name}@3~{epoch + 1}").until("caught-up")
    assert (gap.data["reason"], gap.data["previous_epoch"]) == ("recreated", epoch + 1)
    assert told([records]) == [("record", [1, 2, 3, 4, 5])]
    assert until_level(tail(streams, server, f"{name}@9"))[0] == ("tombstone", (1, 0, "recreated"))


def test_what_is_written_later_arrives(server: Server, five: TopicHandle, streams: Streams) -> None:
    reader = tail(streams, server, five.name)
    assert until_level(reader) == [("caught-up", 5)]
    five.write("new")
    record, level = frames(reader, 2)
    assert set(record.data) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
    assert told([record, level]) == [("record", [6]), ("caught-up", 6)]
    assert position(level) == {five.name: 6}


def test_filters_and_shapes(server: Server, new_topic: NewTopic, streams: Streams) -> None:
    topic = new_topic()
    for n in range(6):
        topic.records({"data": n, "tag": f"k:{n % 2}", "node": f"n{n % 3}", "meta": {"m": n}})
    name = topic.name + "@0"
    assert until_level(tail(streams, server, name, tag="k:1"))[0] == ("record", [2, 4, 6])
    assert until_level(tail(streams, server, name, tag="k:*", node=["n0", "n1"]))[0] == ("record", [3, 6])
    record = tail(streams, server, name, include_tags="true", include_meta="false").frame()
    assert record is not None
    assert record.data["records"][0].keys() == {"$seq", "$ts", "$node", "$tag", "data"}
    record = tail(streams, server, name, include_data="false", limit=2).frame()
    assert record is not None
    assert [r.keys() for r in record.data["records"]] == [{"$seq", "$ts", "$node", "meta"}] * 2
    reader = tail(streams, server, topic.name + "@-1", tag="k:0")
    # The last record has another tag: what the reader leaves out is passed in silence, but passed.
    (level,) = reader.until("caught-up")
    assert position(level) == {topic.name: 6}


def test_loss_is_announced(server: Server, new_topic: NewTopic, streams: Streams) -> None:
    topic = new_topic(cap_records=2)
    topic.fill(5)
    reader = tail(streams, server, topic.name + "@0", tag="none")
    assert until_level(reader) == [("tombstone", (1, 3, "from_seq_too_old")), ("caught-up", 5)]


def test_an_id_resumes_and_wins_over_the_query(server: Server, new_topic: NewTopic, streams: Streams) -> None:
    one, two = new_topic(), new_topic()
    one.fill(3)
    two.fill(3)
    names = (one.name + "@0", two.name + "@0")
    reader = tail(streams, server, *names)
    last = frames(reader, 4)[-1]
    assert position(last) == {one.name: 3, two.name: 3}
    reader.close()
    one.write("while away")
    again = tail(streams, server, *names, last_id=last.id)
    assert sorted((frame.event, frame.data["topic"]) for frame in frames(again, 3)) == sorted(
        [("record", one.name), ("caught-up", one.name), ("caught-up", two.name)]
    )
    for query in (last.id, last.id + "=="):
        first = tail(streams, server, one.name + "@0", last_event_id=query).frame()
        assert first is not None
        assert told([first]) == [("record", [4])]
    # One that cannot be read is as good as none.
    assert until_level(tail(streams, server, one.name + "@3", last_id="!"))[0] == ("record", [4])


def test_what_came_between_two_streams_is_read_from_its_first_record(
    server: Server, five: TopicHandle, unborn: TopicHandle, streams: Streams
) -> None:
    reader = tail(streams, server, five.name, unborn.name)
    (level,) = reader.until("caught-up")
    assert position(level) == {five.name: 5}
    reader.close()
    unborn.fill(3)
    again = tail(streams, server, five.name, unborn.name, last_id=level.id)
    assert sorted(told(frames(again, 3))) == [("caught-up", 3), ("caught-up", 5), ("record", [1, 2, 3])]


def test_a_topic_that_is_not_there_is_waited_for(
    server: Server, names: Iterator[str], streams: Streams
) -> None:
    for start in ("", "@0", "@-3"):
        topic = TopicHandle(server, next(names))
        reader = tail(streams, server, topic.name + start)
        topic.write("first")
        seen: list[Any] = []
        while ("record", [1]) not in seen:
            seen += told(frames(reader, 1))
        assert {event for event, _ in seen} <= {"record", "caught-up"}
    topic = TopicHandle(server, next(names))
    reader = tail(streams, server, topic.name + "@41")
    topic.write("first")
    first = reader.frame()
    assert first is not None
    assert first.data["reason"] == "recreated"


def forgotten_later(server: Server, name: str, other: str, last_id: str, streams: Streams) -> None:
    """Who stood in a topic that is gone, and got frames of another one since, is told when it comes again."""
    reader = tail(streams, server, name, other, last_id=last_id)
    (level,) = reader.until("caught-up")
    topic = TopicHandle(server, name.rstrip("*"))
    topic.fill(4)
    assert told(reader.until("record"))[0] == ("tombstone", (1, 0, "recreated"))
    again = tail(streams, server, name, other, last_id=level.id).until("record")
    assert [frame.data["topic"] for frame in again if frame.event == "tombstone"] == [topic.name]
    assert told(again)[-1] == ("record", [1, 2, 3, 4])


@pytest.mark.parametrize(("star", "records"), [("", 3), ("*", 3), ("", 0)])
def test_an_id_remembers_topics_that_are_gone(
    server: Server, five: TopicHandle, new_topic: NewTopic, streams: Streams, star: str, records: int
) -> None:
    topic = new_topic()
    topic.drop().ok()
    topic.put()
    topic.fill(records)
    last = frames(tail(streams, server, topic.name + "@0", five.name), 3 if records else 2)[-1].id
    assert last is not None
    topic.drop().ok()
    forgotten_later(server, topic.name + star, five.name, last, streams)


def test_an_id_of_a_topic_that_this_server_never_had(
    server: Server, five: TopicHandle, unborn: TopicHandle, streams: Streams
) -> None:
    """Of another server, or of what a restore has undone: nothing of what comes under its name is skipped."""
    unknown = base64.urlsafe_b64encode(json.dumps({unborn.name: 3, five.name: 5}).encode()).decode()
    forgotten_later(server, unborn.name, five.name, unknown, streams)


def test_a_seq_in_a_topic_that_is_not_there_is_remembered(
    server: Server, five: TopicHandle, unborn: TopicHandle, streams: Streams
) -> None:
    (level,) = tail(streams, server, unborn.name + "@3", five.name).until("caught-up")
    unborn.fill(4)
    again = tail(streams, server, unborn.name, five.name, last_id=level.id).until("record")
    assert ("tombstone", (1, 0, "recreated")) in told(again)


def test_a_prefix_takes_in_topics_that_come_later(server: Server, streams: Streams) -> None:
    server.topic("shop.a").fill(2)
    server.topic("shopping").fill(1)
    reader = tail(streams, server, "shop.*")
    assert until_level(reader) == [("caught-up", 2)]
    TopicHandle(server, "shop.b").write("first")
    TopicHandle(server, "shopping").write("other")
    seen: list[Frame] = []
    while not any(frame.event == "record" for frame in seen):
        seen += frames(reader, 1)
    assert told(seen[-1:]) == [("record", [1])]
    assert {frame.data["topic"] for frame in seen} == {"shop.b"}
    assert position(seen[-1]) == {"shop.a": 2, "shop.b": 1}
    # What is named stands for itself, whatever the prefix says.
    both = tail(streams, server, "shop.*@0", "shop.a@2")
    records = [frame for frame in frames(both, 3) if frame.event == "record"]
    assert [frame.data["topic"] for frame in records] == ["shop.b"]


def test_a_deleted_topic(server: Server, new_topic: NewTopic, streams: Streams) -> None:
    topic, other = new_topic(), new_topic()
    topic.fill(2)
    reader = tail(streams, server, topic.name)
    both = tail(streams, server, topic.name, other.name)
    assert until_level(reader) == [("caught-up", 2)]
    frames(both, 2)
    topic.drop().ok()
    (gone,) = reader.until("topic-deleted")
    assert (gone.data["topic"], gone.data["reason"], gone.data["head_seq"]) == (topic.name, "deleted", 2)
    assert reader.frame() is None
    (gone,) = both.until("topic-deleted")
    other.write("still here")
    assert told(both.until("record")) == [("record", [1])]
    # The next stream is told that it is another one.
    topic.put()
    topic.write("again")
    again = tail(streams, server, topic.name, last_id=gone.id)
    assert again.until("record")[0].data["reason"] == "recreated"


def test_a_deleted_topic_of_a_prefix_may_come_back(server: Server, streams: Streams) -> None:
    topic = server.topic("comes.and.goes")
    topic.fill(2)
    reader = tail(streams, server, "comes.*")
    reader.until("caught-up")
    topic.drop().ok()
    (gone,) = reader.until("topic-deleted")
    assert position(gone) == {topic.name: 2}
    topic.write("again")
    assert told(reader.until("record"))[-1] == ("record", [1])


def test_too_many_topics(server: Server, streams: Streams) -> None:
    for number in range(256):
        server.topic(f"many.{number}")
    reader = tail(streams, server, "many.*")
    frames(reader, 256)
    refused(server, "?topic=many.*&topic=one.more")
    server.topic("many.more")
    (closing,) = reader.until("closing")
    assert closing.data["code"] == "too_many_topics"
    assert closing.id is None
    assert reader.frame() is None
    refused(server, "?topic=many.*")


WRONG = """
topic= topic=a%20b topic=@3 topic=a@ topic=a@x topic=a@3~ topic=a~3 topic=a@- topic=a*@3~4 topic=a** topic=*a
topic=a@99999999999999999999 topic=.a* topic=a&topic=a@1 topic=a&limit=-1 topic=a&heartbeat_ms=x
topic=a&tag=%5B%22tag%22%5D
"""
MANY_TOPICS = "&".join(f"topic=t{number}" for number in range(257))


@pytest.mark.parametrize("query", ["", *WRONG.split(), MANY_TOPICS, "topic=a&" + "node=n&" * 1001])
def test_wrong_queries(server: Server, query: str) -> None:
    refused(server, "?" + query)


def test_unknown_parameters_and_streams_that_are_not_accepted(server: Server, streams: Streams) -> None:
    assert refused(server, "?topic=a&topics=b")["did_you_mean"] == {"topics": "topic"}
    server.send("GET", "/v0/tail?topic=a", Accept="text/html").refused(406, "not_acceptable")


def test_a_restart_in_between(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_TEST_MIN_HEARTBEAT_MS="50")
    topic = server.topic("t")
    topic.fill(2)
    reader = tail(streams, server, "t@0", heartbeat_ms=50)
    last = reader.until("caught-up")[-1]
    assert reader.block() == ": hb"
    server.restart(cleanly=True)
    closing = reader.until("closing")[-1]
    assert closing.data["code"] == "server_shutting_down"
    assert reader.frame() is None
    topic.write("after")
    again = tail(streams, server, "t@0", last_id=last.id)
    assert until_level(again) == [("record", [3]), ("caught-up", 3)]
    again.close()
    server.restart(cleanly=False)
    assert until_level(tail(streams, server, "t@0", last_id=last.id))[0] == ("record", [3])


def test_keys(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_API_KEYS="boss,shop:r:shop.,writer:w")
    boss = {"Authorization": "Bearer boss"}
    shop = {"Authorization": "Bearer shop"}
    for name in ("shop.a", "bank.a"):
        server.send("PUT", f"/v0/topics/{name}", {}, **boss).ok(201)
    for path, headers, status in (
        ("?topic=shop.a", {}, 401),
        ("?topic=shop.a&token=shop", {}, 401),
        ("?topic=shop.a", {"Authorization": "Bearer writer"}, 403),
        ("?topic=bank.a", shop, 403),
        ("?topic=shop.a&topic=bank.*", shop, 403),
    ):
        assert server.send("GET", "/v0/tail" + path, **headers).status == status
    # A prefix shows what the key may see, and nothing else: now, and later.
    reader = streams.events(server, "/v0/tail?topic=*", **shop)
    first = reader.frame()
    assert first is not None
    assert position(first) == {"shop.a": 0}
    for name in ("bank.b", "shop.b"):
        server.send("PUT", f"/v0/topics/{name}", {}, **boss).ok(201)
    second = reader.frame()
    assert second is not None
    assert position(second) == {"shop.a": 0, "shop.b": 0}
