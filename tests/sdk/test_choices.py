"""What of a topic is read: by tag, by time, the last ones, one by its seq. Loss is told all the same."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.sdk.conftest import Play
from tests.sdk.test_reading import seqs
from topics import FileCursor, MemoryCursor, RecordGone, RecordsLost, Refused, TopicNotFound, Topics


@pytest.fixture
def tagged(client: Topics, name: str) -> tuple[Any, int]:
    """Six records, tagged a:1, b, a:2, b, … in two halves of time."""
    topic = client.topic(name)
    for number in range(3):
        topic.write(number, tag=f"a:{number}" if number % 2 == 0 else "b")
    first_half = list(topic.read())[-1].ts
    while int(time.time() * 1000) <= first_half + 5:
        time.sleep(0.001)
    for number in range(3, 6):
        topic.write(number, tag=f"a:{number}" if number % 2 == 0 else "b")
    return topic, first_half + 3


def test_tags_and_times(play: Play, tagged: Any, name: str) -> None:
    _, middle = tagged

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        assert await seqs(topic.read(tag="b")) == [2, 4, 6]
        assert await seqs(topic.read(tag="a:*")) == [1, 3, 5]
        assert await seqs(topic.read(tag="a:2")) == [3]
        assert await seqs(topic.read(since=middle)) == [4, 5, 6]
        moment = datetime.fromtimestamp(middle / 1000, UTC)
        assert await seqs(topic.read(since=moment)) == [4, 5, 6]
        assert await seqs(topic.read(until=moment)) == [1, 2, 3]
        assert await seqs(topic.read(until=middle, tag="b")) == [2]
        assert await seqs(topic.read(tag="b", limit=2)) == [2, 4]
        assert await seqs(topic.read(last=2)) == [5, 6]
        assert await seqs(topic.read(last=100)) == [1, 2, 3, 4, 5, 6]
        assert await seqs(topic.tail(last=2, idle_s=0)) == [5, 6]
        assert await seqs(topic.tail(since=middle, idle_s=0)) == [4, 5, 6]
        assert await seqs(topic.tail(from_seq=0, tag="b", idle_s=0)) == [2, 4, 6]
        assert await seqs(topic.tail(from_seq=4, until=int(time.time() * 1000) + 100)) == [5, 6]
        assert [item.seq async for item in topic.items(follow=True, idle_s=0, tag="b")] == [2, 4, 6]

    play(scenario)


def test_what_a_time_leaves_out_is_not_passed(play: Play, tagged: Any, name: str, folder: Any) -> None:
    _, middle = tagged

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        assert await seqs(topic.read(FileCursor(folder / "c"), until=middle)) == [1, 2, 3]
        assert await seqs(topic.read(FileCursor(folder / "c"))) == [4, 5, 6]

    play(scenario)


def test_what_a_tag_leaves_out_counts_as_read(play: Play, tagged: Any, name: str, folder: Any) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        assert await seqs(topic.read(FileCursor(folder / "c"), tag="a:*")) == [1, 3, 5]
        assert await seqs(topic.read(FileCursor(folder / "c"))) == []

    play(scenario)


def test_loss_is_raised_whatever_the_filters(play: Play, tagged: Any, name: str, lose: Any) -> None:
    _, middle = tagged
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        choices: list[dict[str, Any]] = [
            {"tag": "b"},
            {"tag": "nothing"},
            {"since": middle},
            {"until": middle},
            {"node": "x"},
        ]
        for choice in choices:
            cursor = MemoryCursor()
            with pytest.raises(RecordsLost):
                await seqs(topic.read(cursor, **choice))
            assert cursor.position is None
            with pytest.raises(RecordsLost):
                await seqs(topic.tail(MemoryCursor(), idle_s=0, **choice))

    play(scenario)


def test_choices_that_make_no_sense(client: Topics, name: str) -> None:
    topic = client.topic(name)
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"from_seq": -1}),
        (TypeError, {"from_seq": "1"}),
        (TypeError, {"limit": 1.5}),
        (TypeError, {"cursor": "billing.cursor"}),
        (TypeError, {"from_seq": 1, "last": 2}),
        (ValueError, {"since": datetime(2026, 1, 1)}),  # noqa: DTZ001
    ]
    for error, choice in wrong:
        with pytest.raises(error):
            topic.read(**choice)


def test_one_record_by_its_seq(play: Play, tagged: Any, name: str, lose: Any) -> None:
    topic, _ = tagged
    lose(name, 1)
    topic.delete(seqs=[3])

    async def scenario(server: Any) -> None:
        record = await server.topic(name).get(2)
        assert (record.topic, record.seq, record.data, record.tag) == (name, 2, 1, "b")
        for seq, why in ((1, "cap"), (3, "deleted")):
            with pytest.raises(RecordGone) as gone:
                await server.topic(name).get(seq)
            assert (gone.value.why, gone.value.status, gone.value.code) == (why, 410, "record_gone")
        with pytest.raises(Refused) as refused:
            await server.topic(name).get(99)
        assert refused.value.code == "record_not_found"
        with pytest.raises(TopicNotFound):
            await server.topic(name + "-missing").get(1)

    play(scenario)
