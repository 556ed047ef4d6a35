"""watch: several topics over one stream, each with its cursor, over restarts, no loss overlooked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sdk.both import connect
from tests.sdk.conftest import Play
from tests.sdk.test_reading import fill, seqs
from topics import FileCursor, MemoryCursor, RecordsLost, TopicNotFound, TopicRestarted, Topics


def test_topics_are_read_together_and_followed(play: Play, client: Topics, name: str, folder: Any) -> None:
    one, two = name + "-1", name + "-2"
    fill(client, one, 1500)
    fill(client, two, 3)

    async def scenario(server: Any) -> None:
        cursors = {one: FileCursor(folder / "1", every=50), two: FileCursor(folder / "2")}
        watch = server.watch(cursors)
        got: dict[str, list[int]] = {one: [], two: []}
        for _ in range(1503):
            record = await anext(watch)
            got[record.topic].append(record.seq)
        assert got == {one: list(range(1, 1501)), two: [1, 2, 3]}
        for topic in (two, one, two):
            later = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            seq = (await server.topic(topic).write("later")).seq
            record = await later
            assert (record.topic, record.seq, record.data) == (topic, seq, "later")
        await watch.aclose()
        # The last one was under way.
        assert await seqs(server.topic(two).read(FileCursor(folder / "2"))) == [5]
        assert await seqs(server.topic(one).read(FileCursor(folder / "1"))) == []

    play(scenario)


def test_it_ends_after_silence_and_begins_at_the_head(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        assert await seqs(server.watch({name: None}, idle_s=0.05)) == []
        assert await seqs(server.watch({name: MemoryCursor()}, idle_s=0.05)) == [1, 2, 3]
        with pytest.raises(ValueError):
            await seqs(server.watch({}))
        with pytest.raises(TopicNotFound):
            await seqs(server.watch({name: None, name + "-missing": None}, idle_s=5))

    play(scenario)


def test_losses_are_raised_or_handled(play: Play, client: Topics, name: str, lose: Any) -> None:
    fill(client, name, 4)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        cursor, told = MemoryCursor(), []
        for _ in range(2):
            with pytest.raises(RecordsLost) as lost:
                await anext(server.watch({name: cursor}))
            assert cursor.position is None
        assert await seqs(server.watch({name: MemoryCursor()}, idle_s=0, on_loss=told.append)) == [3, 4]
        assert [loss.gap_to for loss in told] == [2]
        assert await seqs(server.watch({name: MemoryCursor()}, idle_s=0, ignore_loss="test")) == [3, 4]
        cursor.accept(lost.value, why="test")
        assert await seqs(server.watch({name: cursor}, idle_s=0)) == [3, 4]

    play(scenario)


def test_a_topic_that_is_made_anew_under_its_watcher_is_told(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        cursor = MemoryCursor()
        watch = server.watch({name: cursor})
        for _ in range(3):
            await anext(watch)
        later = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        topic = server.topic(name)
        await topic.drop()
        await topic.write("anew")
        # Whether it looks while there is no topic, or finds the new one, is a matter of luck.
        with pytest.raises((TopicRestarted, TopicNotFound)):
            await later
        with pytest.raises(TopicRestarted) as told:
            await anext(server.watch({name: cursor}))
        cursor.accept(told.value, why="test")
        assert await seqs(server.watch({name: cursor}, idle_s=0)) == [1]

    play(scenario)


def test_a_watcher_goes_on_after_a_restart(topics_server: Any, surface: str) -> None:
    async def scenario() -> None:
        async with connect(surface, topics_server.url, retry_s=100) as server:
            topic = server.topic("orders")
            await topic.write(1)
            watch = server.watch({"orders": MemoryCursor()})
            tail = topic.tail(MemoryCursor())
            assert [(await anext(watch)).seq, (await anext(tail)).seq] == [1, 1]
            waiting = [asyncio.ensure_future(anext(stream)) for stream in (watch, tail)]
            await asyncio.sleep(0)
            await asyncio.to_thread(topics_server.restart, True)
            await topic.write(2)
            assert [(await one).seq for one in waiting] == [2, 2]
            await watch.aclose()
            await tail.aclose()

    asyncio.run(scenario())
