"""Cursors: resume is exact, a foreign or damaged one is an error, effect and position are stored at once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.conftest import Play
from tests.sdk.test_reading import fill, seqs
from topics import (
    AsyncTopics,
    Cursor,
    FileCursor,
    Lost,
    MemoryCursor,
    Position,
    RecordsLost,
    ServerCursor,
    SqliteCursor,
    Topics,
)
from topics.testing import TopicsServer

MakeCursor = Callable[..., Cursor]


class OwnCursor(Cursor):
    """As a user would write one: it does without super().__init__()."""

    def __init__(self, path: Path, **_: Any) -> None:
        self._path = path

    def load(self) -> Position | None:
        if not self._path.exists():
            return None
        topic, epoch, seq = self._path.read_text().split()
        return Position(topic, int(epoch), int(seq))

    def store(self, position: Position) -> None:
        self._path.write_text(f"{position.topic} {position.epoch} {position.seq}")


@pytest.fixture(params=["file", "sqlite", "server", "own"])
def kept(request: pytest.FixtureRequest, folder: Path, name: str) -> MakeCursor:
    """`kept()`: the cursor as a consumer finds it that was started again."""
    kinds: dict[str, MakeCursor] = {
        "file": lambda **more: FileCursor(folder / "cursor", **more),
        "sqlite": lambda **more: SqliteCursor(folder / "db", "billing", **more),
        "server": lambda **more: ServerCursor("billing", **more),
        "own": lambda **more: OwnCursor(folder / "own", **more),
    }
    return kinds[request.param]


def test_only_the_one_under_way_comes_again(play: Play, client: Topics, name: str, kept: MakeCursor) -> None:
    fill(client, name, 5)

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        reader = topic.read(kept())
        assert [(await anext(reader)).seq for _ in range(3)] == [1, 2, 3]
        await reader.aclose()  # a break; 3 was under way
        reader = topic.read(kept())
        assert (await anext(reader)).seq == 3
        with pytest.raises(KeyError):
            await reader.athrow(KeyError("the consumer's own error"))
        assert await seqs(topic.read(kept())) == [3, 4, 5]
        assert await seqs(topic.read(kept())) == []

    play(scenario)


def test_commit_ends_a_record_before_the_next_is_asked_for(
    play: Play, client: Topics, name: str, kept: MakeCursor
) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        topic, cursor = server.topic(name), kept()
        reader = topic.read(cursor)
        record = await anext(reader)
        cursor.commit(record)
        cursor.commit(record)
        assert cursor.position == Position(name, record.epoch, 1)
        await reader.aclose()
        assert await seqs(topic.read(kept())) == [2, 3]

    play(scenario)


def test_what_is_committed_is_stored_before_the_next_one_comes(
    play: Play, client: Topics, name: str, kept: MakeCursor
) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        cursor = kept(every=100)
        reader = server.topic(name).read(cursor)
        cursor.commit(await anext(reader))
        await anext(reader)
        again = kept()
        assert await seqs(server.topic(name).read(again)) == [2, 3]
        await reader.aclose()

    play(scenario)


def test_an_accepted_loss_is_behind_a_consumer_that_starts_again(
    play: Play, client: Topics, name: str, lose: Any, kept: MakeCursor
) -> None:
    fill(client, name, 4)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic, cursor = server.topic(name), kept()
        with pytest.raises(RecordsLost) as lost:
            await seqs(topic.read(cursor))
        cursor.accept(lost.value, why="test")
        assert [(one.loss.gap_to, one.why) for one in cursor.accepted] == [(2, "test")]
        assert await seqs(topic.read(cursor, limit=1)) == [3]
        assert await seqs(topic.read(kept())) == [4]
        if isinstance(cursor, FileCursor | SqliteCursor):
            assert kept().accepted == cursor.accepted

    play(scenario)


def test_what_is_passed_over_counts_as_read(play: Play, name: str, kept: MakeCursor) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        for node in ("me", "other", "me"):
            await topic.write(1, node=node)
        assert await seqs(topic.read(kept(), node="me")) == [2]
        assert await seqs(topic.read(kept())) == []

    play(scenario)


def test_a_cursor_of_another_topic_is_an_error(
    play: Play, client: Topics, name: str, kept: MakeCursor
) -> None:
    fill(client, name, 1)
    fill(client, name + "-other", 1)

    async def scenario(server: Any) -> None:
        cursor = kept()
        await seqs(server.topic(name).read(cursor))
        with pytest.raises(ValueError, match="of topic"):
            await seqs(server.topic(name + "-other").read(cursor))
        if not isinstance(cursor, ServerCursor):  # the server keeps one for each topic
            with pytest.raises(ValueError, match="of topic"):
                await seqs(server.topic(name + "-other").read(kept()))

    play(scenario)


def test_every_stores_each_nth(play: Play, client: Topics, name: str, folder: Path) -> None:
    fill(client, name, 7)

    async def scenario(server: Any) -> None:
        reader = server.topic(name).read(FileCursor(folder / "c", every=3))
        for _ in range(6):
            await anext(reader)
        at = FileCursor(folder / "c").position
        assert at is not None
        assert at.seq == 3
        await reader.aclose()
        at = FileCursor(folder / "c").position
        assert at is not None
        assert at.seq == 5

    play(scenario)


@pytest.mark.parametrize(("start", "expected"), [("first", None), ("earliest", [3, 4]), ("head", [])])
def test_where_a_new_consumer_begins(
    play: Play, client: Topics, name: str, lose: Any, kept: MakeCursor, start: Any, expected: Any
) -> None:
    fill(client, name, 4)
    lose(name, 2)
    if isinstance(kept(), OwnCursor):
        return

    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        if expected is None:
            items = [item async for item in topic.items(kept(start=start))]
            assert [type(item).__name__ for item in items] == ["Lost", "Record", "Record"]
        else:
            assert await seqs(topic.read(kept(start=start))) == expected

    play(scenario)


def test_accepting_needs_a_reason_and_the_right_loss(client: Topics, name: str, lose: Any) -> None:
    fill(client, name, 3)
    cursor = MemoryCursor()
    list(client.topic(name).read(cursor, limit=1))
    loss = Lost(name, 1, 2, 2, "cap", 1)
    with pytest.raises(ValueError, match="why"):
        cursor.accept(loss, why=" ")
    with pytest.raises(ValueError, match="of topic"):
        cursor.accept(Lost("other", 1, 1, 2, "cap", 1), why="x")
    epoch = client.topic(name).describe().epoch
    with pytest.raises(ValueError, match="has not come to"):
        cursor.accept(Lost(name, epoch, 3, 3, "cap", 1), why="x")
    assert cursor.accepted == []


@pytest.mark.parametrize("watches", [False, True])
def test_what_was_committed_is_stored_before_the_client_closes(
    shared: TopicsServer, client: Topics, name: str, folder: Path, watches: bool
) -> None:
    """A loop that is left with `break` comes to its end when asyncio finds the time, which may be never."""
    fill(client, name, 5)

    async def consume(cursor: Cursor) -> None:
        async with AsyncTopics(shared.url) as server:
            records = server.watch({name: cursor}) if watches else server.topic(name).read(cursor)
            async for record in records:
                if record.seq == 3:
                    cursor.commit(record)
                    break

    asyncio.run(consume(ServerCursor("me")))
    assert [kept.seq for kept in client.topic(name).cursors()] == [3]
    asyncio.run(consume(FileCursor(folder / "c", every=100)))
    assert [record.seq for record in client.topic(name).read(FileCursor(folder / "c"))] == [4, 5]


def test_what_was_accepted_is_stored_before_the_client_closes(
    shared: TopicsServer, client: Topics, name: str, lose: Any
) -> None:
    fill(client, name, 5)
    lose(name, 3)

    async def consume(cursor: Cursor) -> None:
        async with AsyncTopics(shared.url) as server:
            try:
                await seqs(server.topic(name).read(cursor))
            except RecordsLost as loss:
                cursor.accept(loss, why="no reader comes behind this")

    asyncio.run(consume(ServerCursor("me")))
    assert [record.seq for record in client.topic(name).read(ServerCursor("me"))] == [4, 5]
    # One that has gone to another client is that one's to store.
    moved = ServerCursor("moved")

    async def move() -> None:
        async with AsyncTopics(shared.url) as first, AsyncTopics(shared.url) as second:
            assert await seqs(first.topic(name).read(moved, from_seq=3, limit=1)) == [4]
            async for record in second.topic(name).read(moved):
                moved.commit(record)
                await first.close()
                assert {kept.consumer: kept.seq for kept in client.topic(name).cursors()}["moved"] == 4
                break

    asyncio.run(move())
    assert {kept.consumer: kept.seq for kept in client.topic(name).cursors()}["moved"] == 5


def test_before_the_first_use_there_is_no_position(kept: MakeCursor) -> None:
    assert kept().position is None
    assert kept().accepted == []


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 2000, b'{"seq": 3}'])
def test_a_damaged_file_is_no_new_beginning(client: Topics, name: str, folder: Path, damage: bytes) -> None:
    (folder / "c").write_bytes(damage)
    with pytest.raises(ValueError, match="damaged"):
        FileCursor(folder / "c")
    (folder / "db").write_bytes(damage or b"y")
    with pytest.raises(ValueError, match="damaged"):
        SqliteCursor(folder / "db", "me")


def test_every_single_byte_of_a_file_counts(client: Topics, name: str, folder: Path) -> None:
    fill(client, name, 2)
    list(client.topic(name).read(FileCursor(folder / "c")))
    whole = (folder / "c").read_bytes()
    used = len(whole.rstrip())
    for index in range(used):
        (folder / "c").write_bytes(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            FileCursor(folder / "c")
    (folder / "c").write_bytes(whole[:used])
    with pytest.raises(ValueError, match="damaged"):
        FileCursor(folder / "c")


def test_effect_and_position_are_stored_at_once(play: Play, client: Topics, name: str, folder: Path) -> None:
    fill(client, name, 3)

    async def scenario(server: Any) -> None:
        cursor = SqliteCursor(folder / "db", "billing")
        with pytest.raises(ValueError, match="under way"), cursor.transaction():
            pass
        reader = server.topic(name).read(cursor)
        await anext(reader)
        with cursor.transaction() as db:
            db.execute("CREATE TABLE sums (n INTEGER)")
            db.execute("INSERT INTO sums VALUES (1)")
        second = await anext(reader)

        def fail_halfway() -> None:
            with cursor.transaction() as db:
                db.execute("INSERT INTO sums VALUES (2)")
                raise KeyError("the effect fails")

        with pytest.raises(KeyError):
            fail_halfway()
        assert cursor.position == Position(name, second.epoch, 1)
        await reader.aclose()
        with sqlite3.connect(folder / "db") as other:
            assert other.execute("SELECT n FROM sums").fetchall() == [(1,)]
        other.close()
        assert await seqs(server.topic(name).read(SqliteCursor(folder / "db", "billing"))) == [2, 3]

    play(scenario)


@pytest.mark.parametrize("kind", [FileCursor, ServerCursor, MemoryCursor, Cursor])
def test_no_other_cursor_has_transactions(kind: type) -> None:
    assert not hasattr(kind, "transaction")
