"""A reader can leave out what it wrote itself."""

from __future__ import annotations

from tests.contract.conftest import NewTopic
from tests.contract.server import Server
from tests.contract.streams import Streams


def test_the_named_nodes_are_left_out_byte_for_byte(new_topic: NewTopic) -> None:
    topic = new_topic()
    for node in ("a", "A", "ab", "", "é", "e\u0301", "a ", None):
        topic.records({"data": node, "node": node})
    everything = list(range(1, 9))
    assert topic.seqs() == everything
    for seq, node in ((1, "a"), (2, "A"), (3, "ab"), (4, ""), (5, "é"), (6, "e\u0301"), (7, "a ")):
        assert topic.seqs(node=node) == [other for other in everything if other != seq]
    assert topic.seqs(node=["a", "A", "ab", "nobody"]) == [4, 5, 6, 7, 8]
    assert topic.seqs(node=["a*", "*"]) == everything
    assert topic.seqs(node=[]) == everything
    assert topic.seqs(node="null") == everything


def test_filtered_seqs_move_the_cursor_to_the_head(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": "own"})
    page = topic.diff(0, node="own")
    assert (page["next_from_seq"], page["caught_up"], page["tombstone"]) == (3, True, None)


def test_a_topic_can_switch_filtering_off(new_topic: NewTopic) -> None:
    topic = new_topic(dedupe_node=False)
    topic.records({"data": 1, "node": "own"})
    assert topic.seqs(node="own") == [1]
    topic.put()
    assert topic.seqs(node="own") == []


def test_many_nodes_over_many_batches(new_topic: NewTopic) -> None:
    topic = new_topic()
    for batch in range(5):
        topic.records(*[{"data": n, "node": f"node-{n % 50}"} for n in range(100)], node=f"batch-{batch}")
    own = [f"node-{n}" for n in range(0, 50, 2)]
    records, gaps = topic.drain(node=own, limit=33)
    assert [record["data"] % 50 % 2 for record in records] == [1] * 250
    assert gaps == []


def test_more_names_than_a_topic_has_nodes(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "node": "n5"}, {"data": 2})
    assert topic.seqs(node=[f"n{number}" for number in range(1000)]) == [2]


def test_watchers_get_what_a_diff_without_their_own_says(
    server: Server, streams: Streams, new_topic: NewTopic
) -> None:
    """Frame by frame, with the ids: whoever comes back with one goes on behind what it was told."""
    topic = new_topic()
    nodes = ["a", "b", 'é"', None]
    readers = {
        node: streams.watch(server, {topic.name: {"tail": True}}, **({} if node is None else {"node": node}))
        for node in nodes
    }
    for reader in readers.values():
        reader.until("caught-up")
    head = 0
    for batch in (["a"], ["b", "a", None], ["a", "b", 'é"', "c"], ["c"]):
        topic.records(*({"data": number, "node": node} for number, node in enumerate(batch)))
        for node, reader in readers.items():
            page = topic.diff(head, **({} if node is None else {"node": node}))
            if not page["records"]:
                continue  # in silence
            frame = reader.frame()
            assert frame is not None
            assert frame.event == "record"
            assert frame.data["records"] == page["records"]
            assert (frame.data["from_seq"], frame.data["to_seq"]) == (head, page["next_from_seq"])
            assert frame.cursors == {topic.name: page["next_from_seq"]}
            level = reader.frame()
            assert level is not None
            assert (level.event, level.id) == ("caught-up", frame.id)
        head += len(batch)
