"""read, tail, items: everything once, in order, and no loss overlooked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.sdk.conftest import Play
from topics import (
    FileCursor,
    Lost,
    MemoryCursor,
    Record,
    RecordsLost,
    Restarted,
    TopicNotFound,
    TopicRestarted,
    Topics,
)

Lose = Callable[[str, int], None]


async def seqs(records: Any) -> list[int]:
    return [record.seq async for record in records]


def fill(client: Topics, name: str, count: int, **settings: Any) -> None:
    client.topic(name, **settings).write_many([{"n": number} for number in range(1, count + 1)])


def test_records_come_as_they_were_written(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        ack = await topic.write({"sku": 7}, tag="a", node="till", meta={"k": 1})
        assert (ack.topic, ack.seq, ack.first_seq, ack.last_seq, ack.count) == (name, 1, 1, 1, 1)
        (record,) = [record async for record in topic.read()]
        assert (record.topic, record.epoch, record.seq) == (name, ack.epoch, 1)
        assert (record.data, record.tag, record.node, record.meta) == ({"sku": 7}, "a", "till", {"k": 1})
        assert record.time == datetime.fromtimestamp(record.ts / 1000, UTC)
        with pytest.raises(AttributeError):
            record.data = 8

    play(scenario)


def test_read_goes_to_the_head_over_many_pages(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 3500)

    async def scenario(server: Any) -> None:
        assert await seqs(server.topic(name).read()) == list(range(1, 3501))
        assert await seqs(server.topic(name).read(from_seq=3490)) == list(range(3491, 3501))
        assert await seqs(server.topic(name).read(limit=1200)) == list(range(1, 1201))
        assert await seqs(server.topic(name).read(from_seq=3500)) == []

    play(scenario)


def test_a_missing_topic_is_an_error(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        with pytest.raises(TopicNotFound) as refused:
            await seqs(server.topic(name, durability="fsync").read())
        assert (refused.value.code, refused.value.status) == ("topic_not_found", 404)

    play(scenario)


def test_tail_begins_at_the_head_and_follows(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 2)

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        tail = topic.tail(idle_s=60)
        first = asyncio.ensure_future(anext(tail))
        # Where exactly the head is when tail looks is not known here; what follows is whole.
        while not first.done():
            last = (await topic.write(0)).seq
        got = [(await first).seq]
        while got[-1] < last:
            got.append((await anext(tail)).seq)
        assert got == list(range(got[0], last + 1))
        assert got[0] >= 3
        await tail.aclose()

    play(scenario)


def test_tail_ends_after_silence(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        assert await seqs(server.topic(name).tail(from_seq=1, idle_s=0.05)) == [2, 3]
        assert await seqs(server.topic(name).tail(idle_s=0)) == []
        assert await seqs(server.topic(name).tail(MemoryCursor(), idle_s=0)) == [1, 2, 3]

    play(scenario)


def test_own_nodes_are_left_out(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        for node in ("a", "b", "a"):
            await topic.write(1, node=node)
        assert await seqs(topic.read(node="a")) == [2]
        cursor = MemoryCursor()
        assert await seqs(topic.read(cursor, node=["a", "b"])) == []
        assert cursor.position is not None
        assert cursor.position.seq == 3

    play(scenario)


# --- losses -------------------------------------------------------------------------------------------------


def test_a_loss_is_raised_before_anything_behind_it(
    play: Play, client: Topics, name: str, lose: Lose
) -> None:
    fill(client, name, 5)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic, cursor = server.topic(name), MemoryCursor()
        for _ in range(2):
            with pytest.raises(RecordsLost) as raised:
                await anext(topic.read(cursor))
            assert cursor.position is None
            loss = raised.value
            assert (loss.topic, loss.gap_from, loss.gap_to, loss.reason) == (name, 1, 2, "cap")
            assert loss.missed_estimate == 2
            assert loss.code == "records_lost"
        cursor.accept(raised.value, why="known")
        assert [accepted.why for accepted in cursor.accepted] == ["known"]
        assert await seqs(topic.read(cursor)) == [3, 4, 5]

    play(scenario)


def test_a_loss_in_the_middle_comes_after_what_is_in_front(
    play: Play, client: Topics, name: str, lose: Lose, folder: Any
) -> None:
    fill(client, name, 5)

    async def scenario(server: Any) -> None:
        topic, path = server.topic(name), folder / "cursor"
        assert await seqs(topic.read(FileCursor(path), limit=2)) == [1, 2]
        await asyncio.to_thread(lose, name, 3)
        for _ in range(2):
            with pytest.raises(RecordsLost) as raised:
                await seqs(topic.read(FileCursor(path)))
            assert (raised.value.gap_from, raised.value.gap_to) == (3, 3)
        cursor = FileCursor(path)
        cursor.accept(raised.value.loss, why="known")
        assert [item.loss.gap_to for item in FileCursor(path).accepted] == [3]
        assert await seqs(topic.read(FileCursor(path))) == [4, 5]

    play(scenario)


def test_a_topic_made_anew_is_told(play: Play, client: Topics, name: str, folder: Any) -> None:
    fill(client, name, 5)

    async def scenario(server: Any) -> None:
        topic, path = server.topic(name), folder / "cursor"
        before = [record async for record in topic.read(FileCursor(path))]
        await topic.drop()
        for _ in range(9):
            await topic.write(0)
        for _ in range(2):
            with pytest.raises(TopicRestarted) as raised:
                await seqs(topic.read(FileCursor(path)))
            assert raised.value.previous_epoch == before[0].epoch
            assert raised.value.epoch > before[0].epoch
        assert isinstance(raised.value.loss, Restarted)
        cursor = FileCursor(path)
        cursor.accept(raised.value, why="moved")
        assert await seqs(topic.read(cursor)) == list(range(1, 10))

    play(scenario)


def test_on_loss_lets_pass_and_may_refuse(play: Play, client: Topics, name: str, lose: Lose) -> None:
    fill(client, name, 4)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic, told = server.topic(name), []
        assert await seqs(topic.read(on_loss=told.append)) == [3, 4]
        assert [type(loss) for loss in told] == [Lost]

        def refuse(loss: Any) -> None:
            raise KeyError("not now")

        cursor = MemoryCursor()
        with pytest.raises(KeyError):
            await seqs(topic.read(cursor, on_loss=refuse))
        assert cursor.position is None

    play(scenario)


def test_a_handler_may_be_a_coroutine(shared: Any, client: Topics, name: str, lose: Lose) -> None:
    from topics import AsyncTopics

    fill(client, name, 4)
    lose(name, 2)
    told = []

    async def handler(loss: Any) -> None:
        await asyncio.sleep(0)
        told.append(loss)

    async def scenario() -> None:
        async with AsyncTopics(shared.url) as server:
            assert await seqs(server.topic(name).read(on_loss=handler)) == [3, 4]

    asyncio.run(scenario())
    assert len(told) == 1


def test_ignored_losses_are_counted_and_logged(
    play: Play, client: Topics, name: str, lose: Lose, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, name, 4)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        with caplog.at_level(logging.WARNING, "topics"):
            assert await seqs(topic.read(ignore_loss="only the newest count")) == [3, 4]
        assert topic.losses_ignored == 1
        assert "only the newest count" in caplog.text

    play(scenario)


@pytest.mark.parametrize("wrong", [{"ignore_loss": True}, {"ignore_loss": "x", "on_loss": print}])
def test_no_loss_is_ignored_without_a_reason(client: Topics, name: str, wrong: Any) -> None:
    with pytest.raises(TypeError):
        client.topic(name).read(**wrong)
    with pytest.raises(ValueError):
        client.topic(name).read(ignore_loss=" ")


def test_items_have_losses_in_their_place(play: Play, client: Topics, name: str, lose: Lose) -> None:
    fill(client, name, 4)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        items = [item async for item in server.topic(name).items()]
        assert [type(item) for item in items] == [Lost, Record, Record]
        loss = items[0]
        assert (loss.gap_from, loss.gap_to, loss.reason) == (1, 2, "cap")
        assert not hasattr(loss, "data")
        with pytest.raises(TypeError):
            bool(loss)
        with pytest.raises(TypeError):
            len(loss)

    play(scenario)


def test_deletes_are_silent(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 4)
    client.topic(name).delete(before_seq=3)

    async def scenario(server: Any) -> None:
        assert await seqs(server.topic(name).read()) == [3, 4]

    play(scenario)
