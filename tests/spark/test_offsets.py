"""Offsets: what goes into checkpoints, and how far a micro-batch may go."""

import json

import pytest

from pyspark_topics.offsets import (
    NO_EPOCH,
    Offsets,
    Stored,
    StreamOffset,
    TopicView,
    advance,
    from_json,
    heads_of,
    parse_bound,
    read_stored,
    to_json,
)


def view(name: str, head: int, *, epoch: int = 1, floor: int = 1) -> TopicView:
    return TopicView(name, epoch, head, floor)


def test_offsets_survive_the_checkpoint_and_read_the_same_in_any_order() -> None:
    offsets = {"b": StreamOffset(7, 2), "a": StreamOffset(0, 1)}
    text = json.dumps(to_json(offsets))
    assert text == json.dumps(to_json(dict(reversed(offsets.items()))))
    assert from_json(json.loads(text)) == offsets


@pytest.mark.parametrize("stored", [7, {"seq": 7}, {"seq": "7", "epoch": 1}, {"seq": -1, "epoch": 1}, None])
def test_an_offset_we_did_not_write_is_refused_with_a_way_out(stored: object) -> None:
    with pytest.raises(ValueError, match=r'offset of topic "a".*new checkpointLocation'):
        from_json({"a": stored})


def test_without_a_limit_a_batch_goes_to_the_heads() -> None:
    start = {"a": StreamOffset(2, 1), "b": StreamOffset(0, 1)}
    assert advance(start, [view("a", 9), view("b", 4)], None) == {
        "a": StreamOffset(9, 1),
        "b": StreamOffset(4, 1),
    }


def test_a_limit_is_kept_and_shared_by_what_waits() -> None:
    start = {"a": StreamOffset(0, 1), "b": StreamOffset(0, 1)}
    end = advance(start, [view("a", 300), view("b", 100)], 40)
    assert end == {"a": StreamOffset(30, 1), "b": StreamOffset(10, 1)}


def test_a_small_queue_gets_something_while_there_is_room() -> None:
    start = {"a": StreamOffset(0, 1), "b": StreamOffset(0, 1)}
    end = advance(start, [view("a", 1_000_000), view("b", 1)], 10)
    assert end["a"].seq + end["b"].seq == 10
    assert end["b"].seq == 1


def test_with_less_room_than_topics_none_waits_for_ever() -> None:
    views = [view(name, 3) for name in "abcd"]
    at: Offsets = {name: StreamOffset(0, 1) for name in "abcd"}
    for _ in range(6):
        after = advance(at, views, 2)
        assert sum(after[n].seq - at[n].seq for n in "abcd") == 2
        at = after
    assert at == {name: StreamOffset(3, 1) for name in "abcd"}


def test_what_is_gone_at_the_front_does_not_use_up_the_limit() -> None:
    end = advance({"a": StreamOffset(0, 1)}, [view("a", 500, floor=401)], 10)
    assert end["a"] == StreamOffset(410, 1)


def test_a_recreated_topic_is_read_from_its_beginning_under_its_new_epoch() -> None:
    end = advance({"a": StreamOffset(90, 1)}, [view("a", 50, epoch=2)], 10)
    assert end["a"] == StreamOffset(10, 2)
    assert advance({"a": StreamOffset(50, 1)}, [view("a", 50, epoch=2)], None)["a"] == StreamOffset(50, 2)


def test_a_topic_that_is_gone_keeps_its_place() -> None:
    assert advance({"a": StreamOffset(90, 1)}, [], None) == {"a": StreamOffset(90, 1)}


def test_a_topic_that_appears_is_read_from_its_beginning() -> None:
    assert advance({}, [view("a", 5)], None) == {"a": StreamOffset(5, 1)}
    assert advance({"a": StreamOffset(0, NO_EPOCH)}, [view("a", 5)], 2) == {"a": StreamOffset(2, 1)}


def test_nothing_new_leaves_the_offset_as_it_is() -> None:
    start = {"a": StreamOffset(5, 1)}
    assert advance(start, [view("a", 5)], 3) == start


def test_an_offset_says_where_its_topic_ended_if_that_is_further_on() -> None:
    at = {"a": StreamOffset(41, 7), "b": StreamOffset(90, 7)}
    stored = to_json(at, None, {"a": 90, "b": 90})
    assert stored == {"a": {"seq": 41, "epoch": 7, "head": 90}, "b": {"seq": 90, "epoch": 7}}
    assert read_stored(stored) == Stored(at, {}, {"a": 90})
    assert parse_bound(json.dumps(stored)).seqs == {"a": 41, "b": 90}
    assert read_stored({"http://a:1": stored}).heads == {"a": 90}


def test_of_a_topic_that_is_not_read_to_its_end_the_end_is_known_until_it_is() -> None:
    views = [view("a", 9), view("new", 3, epoch=2)]
    end = advance({"a": StreamOffset(0, 1), "gone": StreamOffset(1, 1), "new": StreamOffset(2, 1)}, views, 1)
    assert end == {"a": StreamOffset(1, 1), "gone": StreamOffset(1, 1), "new": StreamOffset(2, 1)}
    assert heads_of(end, views, {"gone": 5, "new": 7, "a": 8}) == {"a": 9, "gone": 5, "new": 7}
