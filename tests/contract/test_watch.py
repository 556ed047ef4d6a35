"""Watch sessions and their event streams: what is delivered, announced and remembered, frame by frame."""

from __future__ import annotations

import base64
import itertools
import json
import re
import signal
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, ask_session, session, told
from tests.http.streaming import EventReader, Frame
from tests.support import Answer, eventually


def event_id(cursors: dict[str, int]) -> str:
    text = json.dumps(cursors, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def until_level(reader: EventReader) -> list[tuple[str, Any]]:
    return told(reader.until("caught-up"))


def in_topics(reader: EventReader, count: int) -> dict[str, list[Frame]]:
    """So many frames, by topic: which topic comes first is nobody's business."""
    found: dict[str, list[Frame]] = {}
    for _ in range(count):
        frame = reader.frame()
        assert frame is not None
        found.setdefault(frame.data["topic"], []).append(frame)
    return found


# Sessions


def test_a_session_shows_where_each_topic_stands(server: Server, new_topic: NewTopic) -> None:
    plain, capped, tailed = new_topic(), new_topic(cap_records=2), new_topic()
    plain.fill(3)
    capped.fill(5)
    tailed.fill(4)
    topics = {plain.name: {"from_seq": 1}, capped.name: {}, tailed.name: {"tail": True, "from_seq": 2}}
    body = session(server, topics)
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", body["wid"])
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {
        plain.name: {"from_seq": 1, "head_seq": 3, "earliest_seq": 1, "epoch": plain.state()["epoch"]},
        capped.name: {"from_seq": 0, "head_seq": 5, "earliest_seq": 4, "epoch": capped.state()["epoch"]},
        tailed.name: {"from_seq": 4, "head_seq": 4, "earliest_seq": 1, "epoch": tailed.state()["epoch"]},
    }
    assert session(server, topics)["wid"] != body["wid"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": None},
        {"topics": []},
        {"topics": ["a"]},
        {"topics": {"a": 1}},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": {"from_seq": "0"}}},
        {"topics": {"a": {"tail": 1}}},
        {"topics": {"a": None}},
        {"topics": {"a": {"from_seq": 2**64}}},
        {"topics": {"a": {}}, "max_batch_bytes": -1},
        {"topics": {"a": {}}, "heartbeat_ms": None},
        {"topics": {f"t{number}": {} for number in range(257)}},
        {"topics": {"a": {}}, "node": 5},
        {"topics": {"a": {}}, "node": [5]},
        {"topics": {"a": {}}, "limit": -1},
        {"topics": {"a": {}}, "limit": "9"},
        {"topics": {"a": {}}, "max_batch_bytes": 1.5},
        {"topics": {"a": {}}, "heartbeat_ms": -1},
        {"topics": {"a": {}}, "include_data": 1},
        {"topics": {"a": {}}, "include_meta": None},
        {"topics": {"a": {}}, "include_tags": "yes"},
        {"topics": {"a": {}}, "consistency": "weak"},
        {"topics": {"a": {}}, "consistency": 1},
        [],
        b"{",
    ],
)
def test_unsound_sessions(server: Server, body: Any) -> None:
    TopicHandle(server, "a").put()
    server.send("POST", "/v0/watch", body).refused(400, "invalid_request")


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": 10**9},
        {"max_batch_bytes": 0},
        {"max_batch_bytes": 10**12},
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 10**9},
        {"node": None},
        {"node": []},
        {"node": ["a", "b"]},
        {"consistency": "strong"},
    ],
)
def test_what_is_out_of_range_is_pulled_in(server: Server, fields: dict[str, Any]) -> None:
    TopicHandle(server, "a").put()
    session(server, ["a"], **fields)


def test_unknown_topics_are_refused_or_left_out(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    topics: dict[str, Any] = {topic.name: {}, "unknown": {}}
    assert ask_session(server, topics).refused(404, "topic_not_found") == {"topic": "unknown"}
    for lenient in ("true", "1"):
        assert set(session(server, topics, f"?lenient={lenient}")["topics"]) == {topic.name}
    ask_session(server, topics, "?lenient=false").refused(404, "topic_not_found")
    server.send("GET", "/v0/topics/unknown").refused(404, "topic_not_found")


def test_256_topics_with_the_longest_names_fit(server: Server, streams: Streams) -> None:
    names = [f"{number:03}".ljust(255, "x") for number in range(256)]
    for name in names:
        TopicHandle(server, name).put()
    made = session(server, names)
    reader = streams.events(server, made["stream_url"])
    level = {reader.next("caught-up").data["topic"] for _ in names}
    assert level == set(names)
    TopicHandle(server, names[200]).write("x")
    frame = reader.next("record")
    assert frame.cursors == {name: int(name == names[200]) for name in names}
    reader.close()
    again = streams.events(server, made["stream_url"], **{"Last-Event-ID": str(frame.id)})
    assert {again.next("caught-up").data["topic"] for _ in names} == set(names)


# Opening


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/plain, application/xml"])
def test_a_stream_must_be_acceptable(
    server: Server, streams: Streams, new_topic: NewTopic, accept: str
) -> None:
    url = session(server, [new_topic().name])["stream_url"]
    # That comes before anything about the session, even whether there is one.
    for path in (url, "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA"):
        streams.get(server, path, Accept=accept).refusal.refused(406, "not_acceptable")


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/event-stream", "text/html, text/event-stream;q=0.5", "a/b, */*"]
)
def test_what_a_stream_answers(server: Server, streams: Streams, new_topic: NewTopic, accept: str) -> None:
    url = session(server, [new_topic().name])["stream_url"]
    reader = streams.get(server, url, Accept=accept, **{"Accept-Encoding": "br"})
    assert reader.status == 200
    assert reader.headers["content-type"].startswith("text/event-stream")
    assert reader.headers["cache-control"] == "no-store"
    assert reader.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in reader.headers
    assert reader.block() == "retry: 2000"
    assert told([reader.next("caught-up")]) == [("caught-up", 0)]


def test_unknown_ids_are_not_found(server: Server, streams: Streams) -> None:
    for wid in ("wid_AAAAAAAAAAAAAAAAAAAAAA", "what", "wid_"):
        streams.get(server, f"/v0/watch/{wid}").refusal.refused(404, "not_found")
    server.send("POST", "/v0/watch/what", {}).refused(405, "method_not_allowed")
    server.send("GET", "/v0/watch").refused(405, "method_not_allowed")


# Records


def test_records_in_frames(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic, other = new_topic(), new_topic()
    other.fill(7)
    topic.records({"data": 1, "node": "n", "tag": "t", "meta": {"m": 1}}, {"data": None})
    reader = streams.watch(server, {topic.name: {}, other.name: {"tail": True}})
    by_topic = in_topics(reader, 3)
    record, level = by_topic[topic.name]
    assert set(record.data) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
    assert (record.data["from_seq"], record.data["to_seq"], record.data["head_seq"]) == (0, 2, 2)
    assert record.data["records"] == topic.diff()["records"]
    assert record.cursors == {topic.name: 2, other.name: 7}
    assert (level.event, level.data) == ("caught-up", {"topic": topic.name, "head_seq": 2})
    assert level.cursors == {topic.name: 2, other.name: 7}
    [tail] = by_topic[other.name]
    assert (tail.event, tail.data) == ("caught-up", {"topic": other.name, "head_seq": 7})


def test_every_batch_that_reaches_the_head_says_so(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic = new_topic()
    reader = streams.watch(server, [topic.name])
    assert until_level(reader) == [("caught-up", 0)]
    for number in range(1, 4):
        topic.write(number)
        assert until_level(reader) == [("record", [number]), ("caught-up", number)]
    topic.write(4, 5)
    assert until_level(reader) == [("record", [4, 5]), ("caught-up", 5)]


def test_frames_hold_so_many_records_and_bytes(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write(*["x" * 98] * 7)
    by_count = streams.watch(server, [topic.name], limit=3)
    frames = by_count.until("caught-up")
    assert told(frames) == [
        ("record", [1, 2, 3]),
        ("record", [4, 5, 6]),
        ("record", [7]),
        ("caught-up", 7),
    ]
    assert [frame.cursors[topic.name] for frame in frames] == [3, 6, 7, 7]
    spans = [(frame.data["from_seq"], frame.data["to_seq"]) for frame in frames[:3]]
    assert spans == [(0, 3), (3, 6), (6, 7)]
    by_bytes = streams.watch(server, [topic.name], max_batch_bytes=250)
    assert [seqs for _, seqs in until_level(by_bytes)][:-1] == [[1, 2], [3, 4], [5, 6], [7]]
    alone = streams.watch(server, [topic.name], max_batch_bytes=1)
    assert len(until_level(alone)) == 8


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, {"$node", "meta", "data"}),
        ({"include_tags": True}, {"$node", "meta", "data", "$tag"}),
        ({"include_meta": False}, {"$node", "data"}),
        ({"include_data": False}, {"$node", "meta"}),
        ({"include_data": False, "include_meta": False, "include_tags": True}, {"$node", "$tag"}),
    ],
)
def test_what_a_record_shows(
    server: Server, streams: Streams, new_topic: NewTopic, fields: Any, keys: set[str]
) -> None:
    topic = new_topic()
    topic.records({"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}})
    record = streams.watch(server, [topic.name], **fields).next("record").data["records"][0]
    assert set(record) == keys | {"$seq", "$ts"}
    topic.records({"data": 1})
    later = streams.watch(server, {topic.name: {"from_seq": 1}}, **fields).next("record").data["records"][0]
    assert set(later) == {"$seq", "$ts"} | (keys & {"data"})


def test_own_records_move_the_cursor_in_silence(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic, marker = new_topic(), new_topic()
    made = session(server, [topic.name, marker.name], node=["me", "also-me"])
    reader = streams.events(server, made["stream_url"])
    reader.next("caught-up"), reader.next("caught-up")
    topic.records({"data": 1, "node": "me"}, {"data": 2, "node": "also-me"})
    marker.write("now")
    assert reader.next("record").data["topic"] == marker.name
    assert reader.next("caught-up").data["topic"] == marker.name
    mine = {"data": "mine", "node": "me"}
    topic.records(mine, {"data": 4, "node": "Me"}, {"data": 5}, mine)
    frame = reader.next("record")
    assert told([frame]) == [("record", [4, 5])]
    assert (frame.data["from_seq"], frame.data["to_seq"]) == (2, 6)
    assert frame.cursors == {topic.name: 6, marker.name: 1}
    reader.next("caught-up")
    topic.records({"data": 7, "node": "me"})
    marker.write("again")
    assert reader.until("caught-up")[0].cursors[topic.name] in (6, 7)
    reader.close()
    # Nothing is delivered twice: the session remembers what was passed over.
    topic.write(8)
    again = streams.events(server, made["stream_url"])
    frames = {frame.event: frame for frame in (again.frame(), again.frame()) if frame is not None}
    assert told([frames["record"]]) == [("record", [8])]
    assert frames["record"].data["from_seq"] == 7


def test_a_topic_may_ignore_node_filters(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic(dedupe_node=False)
    topic.records({"data": 1, "node": "me"})
    assert until_level(streams.watch(server, [topic.name], node="me"))[0] == ("record", [1])


# Gaps


def test_a_deleted_beginning_is_silent(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(6)
    topic.delete(before_seq=5)
    frame = streams.watch(server, [topic.name]).next("record")
    assert told([frame]) == [("record", [5, 6])]
    assert (frame.data["from_seq"], frame.data["to_seq"]) == (0, 6)


def test_an_evicted_beginning_is_told_first(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic, other = new_topic(cap_records=2), new_topic()
    topic.fill(6)
    made = session(server, [topic.name, other.name])
    reader = streams.events(server, made["stream_url"])
    frames = in_topics(reader, 4)[topic.name]
    assert told(frames) == [
        ("tombstone", (1, 4, "from_seq_too_old")),
        ("record", [5, 6]),
        ("caught-up", 6),
    ]
    gap = frames[0]
    assert set(gap.data) == {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}
    assert (gap.data["earliest_seq"], gap.data["head_seq"]) == (5, 6)
    assert gap.cursors == {topic.name: 4, other.name: 0}
    reader.close()
    # Resuming after the announcement is correct: nothing is announced twice.
    again = streams.events(server, made["stream_url"], **{"Last-Event-ID": str(gap.id)})
    assert told(in_topics(again, 3)[topic.name]) == [("record", [5, 6]), ("caught-up", 6)]


def test_later_gaps_keep_their_reason(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2)
    reader = streams.watch(server, [topic.name])
    assert until_level(reader) == [("caught-up", 0)]
    topic.write(*range(5))
    assert until_level(reader) == [("tombstone", (1, 3, "cap")), ("record", [4, 5]), ("caught-up", 5)]


def test_a_gap_with_nothing_behind_it(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic(cap_bytes=2)
    topic.write("too large to stay")
    reader = streams.watch(server, [topic.name])
    assert until_level(reader) == [("tombstone", (1, 1, "from_seq_too_old")), ("caught-up", 1)]
    topic.write("so is this")
    assert until_level(reader) == [("tombstone", (2, 2, "cap")), ("caught-up", 2)]


def test_a_cursor_from_the_future_starts_over(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(2)
    reader = streams.watch(server, {topic.name: {"from_seq": 40}})
    frames = reader.until("caught-up")
    assert told(frames)[1:] == [("record", [1, 2]), ("caught-up", 2)]
    assert (frames[0].event, frames[0].data["reason"]) == ("tombstone", "recreated")
    assert frames[0].cursors == {topic.name: 0}


def test_a_hole_inside_the_log_is_told_where_it_is(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    source, dest = new_topic(cap_records=1), new_topic(cap_records=2, discard="reject")
    dest.fill(2)
    server.send("PUT", f"/v0/routers/{dest.name}", {"source": source.name, "dest": dest.name}).ok(201)
    source.fill(3)
    assert dest.state()["head_seq"] == 2
    dest.put()
    assert until_level(streams.watch(server, [dest.name])) == [
        ("record", [1, 2]),
        ("tombstone", (3, 4, "source_trim")),
        ("record", [5]),
        ("caught-up", 5),
    ]
    assert until_level(streams.watch(server, {dest.name: {"from_seq": 2}})) == [
        ("tombstone", (3, 4, "from_seq_too_old")),
        ("record", [5]),
        ("caught-up", 5),
    ]


# Resuming


def test_a_session_resumes_where_it_was_or_earlier(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic = new_topic()
    topic.fill(5)
    made = session(server, [topic.name])

    def seen(last_id: str | None) -> list[Any]:
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        reader = streams.events(server, made["stream_url"], **headers)
        frames = until_level(reader)
        reader.close()
        return [seqs for event, seqs in frames if event == "record"]

    assert seen(None) == [[1, 2, 3, 4, 5]]
    assert seen(None) == []
    assert seen(event_id({topic.name: 3})) == [[4, 5]]
    assert seen(event_id({topic.name: 2, "stranger": 0})) == [[3, 4, 5]]
    assert seen(event_id({topic.name: 0})) == [[1, 2, 3, 4, 5]]
    for broken in ("", "%%%", "bm90IGpzb24", event_id({"stranger": 0}), "W10", "eyJhIjoxfQ=="):
        assert seen(broken) == []
    # Ahead of what is stored: ignored, nothing is skipped.
    assert seen(event_id({topic.name: 1})) == [[2, 3, 4, 5]]
    topic.write(6)
    assert seen(event_id({topic.name: 99})) == [[6]]


def test_an_id_ahead_of_a_fresh_session_skips_nothing(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    topic = new_topic()
    topic.fill(4)
    made = session(server, {topic.name: {"from_seq": 1}})
    reader = streams.events(server, made["stream_url"], **{"Last-Event-ID": event_id({topic.name: 3})})
    assert until_level(reader)[0] == ("record", [2, 3, 4])


# Topics that go away


def test_a_deleted_topic_is_final_and_the_others_go_on(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    first, second = new_topic(), new_topic()
    first.fill(3)
    made = session(server, {first.name: {"tail": True}, second.name: {}})
    reader = streams.events(server, made["stream_url"])
    reader.next("caught-up"), reader.next("caught-up")
    first.drop().ok()
    gone = reader.next("topic-deleted")
    assert gone.data == {"topic": first.name, "head_seq": 3, "reason": "deleted"}
    assert set(gone.cursors) >= {second.name}
    first.write("new instance")
    second.write("goes on")
    assert reader.next("record").data["topic"] == second.name
    assert reader.next("caught-up").data["topic"] == second.name
    second.drop().ok()
    assert reader.next("topic-deleted").data["topic"] == second.name
    assert reader.frame() is None
    # Back again, the other life of the name is noticed.
    again = streams.events(server, made["stream_url"])
    frames = [frame for frame in again.until("caught-up") if frame.data["topic"] == first.name]
    assert [frame.event for frame in frames] == ["tombstone", "record", "caught-up"]
    assert frames[0].data["reason"] == "recreated"
    assert [record["data"] for record in frames[1].data["records"]] == ["new instance"]


def test_a_stream_ends_with_its_last_topic(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    reader = streams.watch(server, [topic.name])
    reader.next("caught-up")
    topic.drop().ok()
    assert [frame.event for frame in reader.rest()] == ["topic-deleted"]


def test_a_name_reborn_between_two_streams(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(3)
    made = session(server, [topic.name])
    reader = streams.events(server, made["stream_url"])
    assert until_level(reader)[0] == ("record", [1, 2, 3])
    reader.close()
    topic.drop().ok()
    topic.write(*"abcdef")
    again = streams.events(server, made["stream_url"]).until("caught-up")
    assert again[0].data["reason"] == "recreated"
    assert told(again)[1:] == [("record", [1, 2, 3, 4, 5, 6]), ("caught-up", 6)]


# Around the log


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_strong_streams_deliver_in_every_class(
    server: Server, streams: Streams, new_topic: NewTopic, durability: str
) -> None:
    topic = new_topic(durability=durability)
    topic.write(1)
    reader = streams.watch(server, [topic.name], consistency="strong")
    assert reader.until("record")[-1].data["records"][0]["data"] == 1
    topic.write(2)
    assert reader.until("record")[-1].data["records"][0]["data"] == 2


def test_copies_reach_watchers_of_the_destination(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    chain = [new_topic() for _ in range(4)]
    for source, dest in itertools.pairwise(chain):
        server.send("PUT", f"/v0/routers/{dest.name}", {"source": source.name, "dest": dest.name}).ok(201)
    reader = streams.watch(server, [chain[-1].name])
    assert until_level(reader) == [("caught-up", 0)]
    chain[0].write("x")
    assert until_level(reader) == [("record", [1]), ("caught-up", 1)]


def test_watching_a_queue_takes_no_job(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    queue = new_topic(type="queue")
    queue.write(1)
    reader = streams.watch(server, [queue.name])
    assert until_level(reader)[0] == ("record", [1])
    assert queue.state()["queue"] == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


def test_a_stream_pass_counts_as_a_read(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert topic.state()["effective_priority"] == 0
    streams.watch(server, [topic.name]).next("caught-up")
    assert topic.state()["effective_priority"] > 450


def test_streams_show_deletes_at_once(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "tag": "x"}, {"data": 2}, {"data": 3, "tag": "x"}, {"data": 4})
    made = session(server, [topic.name])
    topic.delete(match="x")
    frame = streams.events(server, made["stream_url"]).next("record")
    assert told([frame]) == [("record", [2, 4])]


def test_a_reader_that_stops_reading_is_alone_with_it(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    kept, capped = new_topic(durability="ephemeral"), new_topic(durability="ephemeral", cap_records=50)
    slow, quick = (streams.watch(server, [kept.name, capped.name]) for _ in range(2))
    batch = ["x" * 2000] * 100
    for _ in range(60):
        kept.write(*batch)
        capped.write(*batch)
    # 24 MB later both are told everything, the idle one only now: what is gone by then is announced.
    for reader in (quick, slow):
        at = {kept.name: 0, capped.name: 0}
        while set(at.values()) != {6000}:
            frame = reader.frame()
            assert frame is not None
            name = frame.data["topic"]
            if frame.event == "tombstone":
                assert (name, frame.data["gap_from"]) == (capped.name, at[name] + 1)
                at[name] = frame.data["gap_to"]
            elif frame.event == "record":
                assert frame.seqs == list(range(at[name] + 1, frame.data["to_seq"] + 1))
                at[name] = frame.data["to_seq"]
            assert frame.cursors == at


# Heartbeats and endings


def test_an_idle_stream_beats(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_TEST_MIN_HEARTBEAT_MS="20")
    topic = server.topic("t")
    reader = streams.watch(server, ["t"], heartbeat_ms=20)
    reader.next("caught-up")
    assert [reader.block() for _ in range(3)] == [": hb"] * 3
    topic.write(1)
    block = reader.block()
    while block == ": hb":
        block = reader.block()
    assert block is not None
    assert "event: record" in block


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_announced_on_every_stream(boot: Boot, streams: Streams, number: int) -> None:
    server = boot()
    topic, _ = server.topic("t"), server.topic("q", type="queue")
    made = session(server, ["t"])
    watching = streams.events(server, made["stream_url"])
    watching.next("caught-up")
    working = streams.work(server, "q", "node=w")
    client = streams.socket(server)
    client.send(op="subscribe", topic="t")
    client.next("subscribed"), client.next("caught_up")
    topic.write("last")
    server.signal(number)
    for reader in (watching, working):
        last = reader.rest()[-1]
        assert last.event == "error"
        assert last.data["code"] == "server_shutting_down"
        assert last.data["message"]
    messages = []
    while (message := client.read()) is not None:
        messages.append(message)
    assert messages[-1]["op"] == "error"
    assert messages[-1]["code"] == "server_shutting_down"
    server.hang_up()
    assert server.exit_code() == 0
    server.start()
    assert topic.seqs() == [1]
    streams.get(server, made["stream_url"]).refusal.refused(404, "not_found")


def test_ends_are_noticed_however_they_come(server: Server, streams: Streams, new_topic: NewTopic) -> None:
    topic = new_topic()

    def open_streams() -> int:
        answer: Answer = server.send("GET", "/v0/metrics", Accept="application/json")
        found: int = answer.json["sse_connections"]
        return found

    readers = [streams.watch(server, [topic.name]) for _ in range(5)]
    assert open_streams() >= 5
    for reader in readers:
        reader.close()
    eventually(lambda: open_streams() == 0)
