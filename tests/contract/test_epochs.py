"""A position is a seq in one life of a topic: readers that come with one of another life are told, always."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, ask_session, in_short, session, told
from tests.http.bulk import scan
from tests.http.streaming import EventReader, Frame, SocketClient


def event_id(seqs: dict[str, int], **later: int) -> str:
    """An id as streams give it out; `later`: epochs of topics that are not in their first life."""
    full: dict[str, Any] = seqs | ({"~": later} if later else {})
    text = json.dumps(full, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def reborn(topic: TopicHandle, *, before: int, after: int) -> tuple[int, int]:
    """Drops a topic with so many records and makes it again with so many; returns both epochs."""
    topic.fill(before)
    old = topic.state()["epoch"]
    topic.drop().ok()
    topic.put()
    topic.fill(after)
    new = topic.state()["epoch"]
    assert new > old
    return old, new


def frames_from(streams: Streams, server: Server, topics: Any, **headers: str) -> list[Frame]:
    made = session(server, topics)
    return opened(streams, server, made, **headers)


def opened(streams: Streams, server: Server, made: Any, **headers: str) -> list[Frame]:
    reader = streams.events(server, made["stream_url"], **headers)
    frames = reader.until("caught-up")
    reader.close()
    return frames


@pytest.fixture
def client(server: Server, streams: Streams) -> SocketClient:
    return streams.socket(server)


def messages(client: SocketClient) -> list[Any]:
    found = [client.read()]
    while found[-1]["op"] != "caught_up":
        found.append(client.read())
    return found


# Diff


def test_a_reader_with_an_epoch_is_told_which_one_it_had(new_topic: NewTopic) -> None:
    topic = new_topic()
    old, new = reborn(topic, before=5, after=7)
    page = topic.diff(5, epoch=old)
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 0,
        "reason": "recreated",
        "missed_estimate": 0,
        "earliest_seq": 1,
        "head_seq": 7,
        "previous_epoch": old,
    }
    assert [record["$seq"] for record in page["records"]] == [1, 2, 3, 4, 5, 6, 7]
    assert page["epoch"] == new
    assert topic.diff(5, epoch=new)["tombstone"] is None


def test_a_reader_that_named_no_epoch_is_told_of_none(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    assert "previous_epoch" not in topic.diff(40)["tombstone"]
    # Above the head in this very life: a cursor that cannot be right, and what the reader said it was.
    epoch = topic.state()["epoch"]
    assert topic.diff(40, epoch=epoch)["tombstone"]["previous_epoch"] == epoch
    assert topic.diff(0, epoch=0)["tombstone"]["previous_epoch"] == 0


def test_a_range_of_recreated_can_be_looped_over(boot: Boot) -> None:
    """Whatever the first seq is: what it spans was in this life, and is gone; mostly it is empty."""
    server = boot(TOPICS_SEQ_BASE="100")
    topic = server.topic("t", cap_records=2)
    epoch = topic.state()["epoch"]
    for written, gap in ((0, (100, 99, 0)), (2, (100, 99, 0)), (3, (100, 102, 3))):
        topic.fill(written)
        found = topic.ask_diff(from_seq=7, epoch=epoch + 1).ok()["tombstone"]
        assert (found["gap_from"], found["gap_to"], found["missed_estimate"]) == gap
        assert len(range(found["gap_from"], found["gap_to"] + 1)) == found["missed_estimate"]


def test_a_scan_says_so_too(new_topic: NewTopic) -> None:
    topic = new_topic()
    old, _ = reborn(topic, before=5, after=7)
    scanned = scan(topic.server, topic.name, from_seq=5, epoch=old)
    (gap,) = scanned.gaps
    assert (gap["reason"], gap["previous_epoch"]) == ("recreated", old)
    assert [row["seq"] for row in scanned.rows] == [1, 2, 3, 4, 5, 6, 7]


# Watch


def test_a_session_shows_epochs_and_takes_them(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    old, new = reborn(topic, before=5, after=7)
    made = session(server, {topic.name: {"from_seq": 5, "epoch": old}})
    assert made["topics"][topic.name]["epoch"] == new
    gap, *rest = opened(streams, server, made)
    assert gap.data == {
        "topic": topic.name,
        "reason": "recreated",
        "gap_from": 1,
        "gap_to": 0,
        "earliest_seq": 1,
        "head_seq": 7,
        "previous_epoch": old,
    }
    assert told(rest) == [("record", [1, 2, 3, 4, 5, 6, 7]), ("caught-up", 7)]
    # The epoch of this life: an ordinary position.
    assert told(frames_from(streams, server, {topic.name: {"from_seq": 5, "epoch": new}})) == [
        ("record", [6, 7]),
        ("caught-up", 7),
    ]
    # From the end on is from the end on, in whatever life.
    assert told(frames_from(streams, server, {topic.name: {"tail": True, "epoch": old}})) == [
        ("caught-up", 7)
    ]


def test_without_an_epoch_only_the_head_can_tell(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic = new_topic()
    reborn(topic, before=5, after=3)
    gap, *rest = frames_from(streams, server, {topic.name: {"from_seq": 4}})
    assert (gap.data["reason"], "previous_epoch" in gap.data) == ("recreated", False)
    assert told(rest) == [("record", [1, 2, 3]), ("caught-up", 3)]
    assert told(frames_from(streams, server, {topic.name: {"from_seq": 2}}))[0] == ("record", [3])


def test_a_position_above_the_head_does_not_become_right_by_waiting(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic = new_topic()
    topic.fill(2)
    made = session(server, {topic.name: {"from_seq": 4}})
    topic.fill(4)
    gap, *rest = opened(streams, server, made)
    assert gap.data["reason"] == "recreated"
    assert told(rest)[0] == ("record", [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("epoch", [None, -1, "1", 1.5, True, 2**64])
def test_unsound_epochs(server: Server, client: SocketClient, new_topic: NewTopic, epoch: Any) -> None:
    topic = new_topic()
    position = {"from_seq": 0, "epoch": epoch}
    ask_session(server, {topic.name: position}).refused(400, "invalid_request")
    topic.ask_diff(**position).refused(400, "invalid_request")
    for body in ({"topic": topic.name, **position}, {"topics": {topic.name: position}}):
        assert client.ask(op="subscribe", **body)["code"] == "invalid_request"


# WebSocket


def test_a_socket_shows_epochs_and_takes_them(client: SocketClient, new_topic: NewTopic) -> None:
    topic, other = new_topic(), new_topic()
    old, new = reborn(topic, before=5, after=7)
    other.fill(2)
    at = other.state()["epoch"]
    client.send(
        op="subscribe",
        topic=topic.name,
        from_seq=5,
        epoch=old,
        topics={other.name: {"from_seq": 1, "epoch": at}},
    )
    confirmed = client.next("subscribed")["topics"]
    assert confirmed == {
        topic.name: {"from_seq": 5, "head_seq": 7, "earliest_seq": 1, "epoch": new},
        other.name: {"from_seq": 1, "head_seq": 2, "earliest_seq": 1, "epoch": at},
    }
    found = [client.read() for _ in range(5)]
    mine = [message for message in found if message["topic"] == topic.name]
    assert [(message["op"], in_short(message["op"], message)) for message in mine] == [
        ("tombstone", (1, 0, "recreated")),
        ("record", [1, 2, 3, 4, 5, 6, 7]),
        ("caught_up", 7),
    ]
    assert mine[0]["previous_epoch"] == old
    assert mine[1]["epoch"] == new
    (record,) = [m for m in found if m["op"] == "record" and m["topic"] == other.name]
    assert (in_short("record", record), record["epoch"]) == ([2], at)


def test_a_socket_that_is_open_across_a_rebirth(client: SocketClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    client.send(op="subscribe", topic=topic.name)
    epoch = client.next("subscribed")["topics"][topic.name]["epoch"]
    assert messages(client)[0]["epoch"] == epoch
    topic.drop().ok()
    assert client.next("topic_deleted")["head_seq"] == 3
    topic.put()
    topic.fill(4)
    client.send(op="subscribe", topic=topic.name, from_seq=3, epoch=epoch)
    later = client.next("subscribed")["topics"][topic.name]["epoch"]
    gap, record, _ = messages(client)
    assert (gap["reason"], gap["previous_epoch"]) == ("recreated", epoch)
    assert (in_short("record", record), record["epoch"]) == ([1, 2, 3, 4], later)


# Ids of streams


def test_an_id_is_a_plain_map_in_the_first_life(
    server: Server, streams: Streams, names: Iterator[str]
) -> None:
    lantern, tides = server.topic("lantern"), server.topic("tides")
    lantern.fill(44)
    tides.fill(7)
    reader = streams.watch(server, {"lantern": {"from_seq": 41}, "tides": {"from_seq": 7}})
    ids = {frame.id for frame in (reader.frame() for _ in range(3)) if frame is not None}
    assert "eyJsYW50ZXJuIjo0NCwidGlkZXMiOjd9" in ids


def test_an_id_names_the_epoch_in_a_later_life(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    first, later = new_topic(), new_topic()
    first.fill(2)
    _, epoch = reborn(later, before=1, after=3)
    made = session(server, [first.name, later.name])
    reader = streams.events(server, made["stream_url"])
    frames = [reader.frame() for _ in range(4)]
    assert all(frame is not None and frame.cursors["~"] == {later.name: epoch} for frame in frames)
    last = frames[-1]
    assert last is not None
    assert last.cursors == {first.name: 2, later.name: 3, "~": {later.name: epoch}}
    reader.close()
    # The id is understood: nothing is told again, and nothing is left out.
    later.write("one more")
    again = streams.events(server, made["stream_url"], **{"Last-Event-ID": str(last.id)})
    assert told(until_both_are_level(again)) == [
        ("caught-up", 2),
        ("record", [4]),
        ("caught-up", 4),
    ]


def until_both_are_level(reader: EventReader) -> list[Frame]:
    frames = [*reader.until("caught-up"), *reader.until("caught-up")]
    return sorted(frames, key=lambda frame: str(frame.data["topic"]))


def test_an_id_of_a_former_life_rewinds_to_the_start_of_this_one(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    """Twice: the second time the session has been in the new life already, and further than the id says."""
    topic = new_topic()
    topic.fill(40)
    made = session(server, [topic.name])
    last = opened(streams, server, made)[-1].id
    topic.drop().ok()
    topic.put()
    topic.fill(50)
    for _ in range(3):
        gap, *rest = opened(streams, server, made, **{"Last-Event-ID": str(last)})
        assert gap.data["reason"] == "recreated"
        assert told(rest) == [("record", list(range(1, 51))), ("caught-up", 50)]
    # An id of this life is compared as ever.
    now = rest[-1].id
    topic.fill(1)
    assert told(opened(streams, server, made, **{"Last-Event-ID": str(now)}))[0] == ("record", [51])


def test_two_former_lives_are_told_apart(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    _, second = reborn(topic, before=3, after=3)
    made = session(server, [topic.name])
    last = opened(streams, server, made)[-1].id
    topic.drop().ok()
    topic.fill(5)
    (third,) = {topic.state()["epoch"]} - {second}
    gap, *rest = opened(streams, server, made, **{"Last-Event-ID": str(last)})
    assert (gap.data["reason"], gap.data["previous_epoch"]) == ("recreated", second)
    assert rest[-1].cursors == {topic.name: 5, "~": {topic.name: third}}
    for foreign, named in (
        (event_id({topic.name: 2}), None),
        (event_id({topic.name: 2}, **{topic.name: second}), second),
        (event_id({topic.name: 2}, **{topic.name: 12345}), 12345),
    ):
        gap, *rest = opened(streams, server, made, **{"Last-Event-ID": foreign})
        assert gap.data["reason"] == "recreated"
        assert gap.data.get("previous_epoch") == named
        assert told(rest)[0] == ("record", [1, 2, 3, 4, 5])


def test_ids_that_are_none_are_ignored(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    made = session(server, [topic.name])
    opened(streams, server, made)
    for wrong in ({"~": 1}, {"~": []}, {"~": None}, {"~": {topic.name: -1}}, {"~": {topic.name: "1"}}):
        text = json.dumps({topic.name: 1, **wrong}).encode()
        last = base64.urlsafe_b64encode(text).decode().rstrip("=")
        assert told(opened(streams, server, made, **{"Last-Event-ID": last})) == [("caught-up", 3)]
    # Epochs of topics that the session does not have are nobody's business.
    last = event_id({topic.name: 1, "stranger": 4}, stranger=9)
    assert told(opened(streams, server, made, **{"Last-Event-ID": last}))[0] == ("record", [2, 3])


def test_a_stream_that_stays_open_across_a_rebirth(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    """Whether it sees the topic go or finds the next one in its place."""
    topic, other = new_topic(), new_topic()
    topic.fill(3)
    made = session(server, [topic.name, other.name])
    reader = streams.events(server, made["stream_url"])
    reader.until("caught-up"), reader.until("caught-up")
    topic.drop().ok()
    gone = reader.next("topic-deleted")
    topic.fill(2)
    epoch = topic.state()["epoch"]
    reader.close()
    again = streams.events(server, made["stream_url"], **{"Last-Event-ID": str(gone.id)})
    frames = [f for f in until_both_are_level(again) if f.data["topic"] == topic.name]
    assert told(frames) == [("tombstone", (1, 0, "recreated")), ("record", [1, 2]), ("caught-up", 2)]
    assert [frame.cursors["~"] for frame in frames] == [{topic.name: epoch}] * 3
    assert frames[0].cursors[topic.name] == 0


# Restarts


@pytest.mark.parametrize("cleanly", [True, False])
def test_lives_are_remembered_over_restarts(boot: Boot, streams: Streams, cleanly: bool) -> None:
    """Also of a name that has no topic at the time."""
    server = boot()
    first, later, gone = server.topic("first"), server.topic("later"), server.topic("gone")
    _, epoch = reborn(later, before=1, after=1)
    gone.drop().ok()
    for _ in range(2):
        server.restart(cleanly=cleanly)
        frames = frames_from(streams, server, {first.name: {"tail": True}})
        assert frames[-1].cursors == {"first": 0}
        frames = frames_from(streams, server, {later.name: {"tail": True}})
        assert frames[-1].cursors == {"later": 1, "~": {"later": epoch}}
    gone.put()
    frames = frames_from(streams, server, {gone.name: {"tail": True}})
    assert frames[-1].cursors == {"gone": 0, "~": {"gone": gone.state()["epoch"]}}
    assert frames_from(streams, server, {server.topic("new").name: {}})[-1].cursors == {"new": 0}
