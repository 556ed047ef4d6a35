"""write, write_many, writer: acknowledged once, in order; settings and types hold."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from math import inf, isnan
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from tests.sdk.conftest import Play
from tests.sdk.test_reading import seqs
from topics import AsyncTopics, ConfigDiffers, Draft, InvalidData, MemoryCursor, Refused, Topics
from topics.testing import TopicsServer


@dataclass
class Order:
    sku: str
    count: int


class Price(msgspec.Struct):
    amount: float | None


def test_a_batch_is_one_write(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        ack = await topic.write_many([1, Draft({"a": 2}, tag="t", node="n", meta={"m": 1}), None])
        assert (ack.first_seq, ack.last_seq, ack.seq, ack.count) == (1, 3, 3, 3)
        records = [record async for record in topic.read()]
        assert [record.data for record in records] == [1, {"a": 2}, None]
        assert (records[1].tag, records[1].node, records[1].meta) == ("t", "n", {"m": 1})
        with pytest.raises(ValueError):
            await topic.write_many([])
        # What is one record is not taken apart into several.
        for one in ("abc", b"abc", {"a": 1}):
            with pytest.raises(TypeError, match="write takes it"):
                await topic.write_many(one)
        assert (await topic.describe()).head_seq == 3

    play(scenario)


def test_a_key_makes_a_repeat_harmless(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        first = await topic.write("x", idempotency_key="k")
        again = await topic.write("x", idempotency_key="k")
        assert (first.deduped, again.deduped, again.seq) == (False, True, first.seq)
        many = await topic.write_many(["y", "z"], idempotency_key="m")
        assert (await topic.write_many(["y", "z"], idempotency_key="m")).first_seq == many.first_seq

    play(scenario)


def test_a_writer_keeps_order_and_counts(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        async with topic.writer(batch_bytes=500, linger_ms=10_000) as writer:
            for number in range(300):
                await writer.write({"n": number}, tag="t")
            ack = await writer.flush()
            assert (writer.count, ack.last_seq, writer.last) == (300, 300, ack)
            await writer.write({"n": 300})
        assert writer.count == 301
        with pytest.raises(RuntimeError, match="block has ended"):
            await writer.write({"n": 301})
        assert (await writer.flush()).last_seq == 301
        assert [record.data["n"] async for record in topic.read()] == list(range(301))

    play(scenario)


def test_a_writer_writes_what_it_has_when_its_block_fails(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)

        async def program() -> None:
            async with topic.writer(linger_ms=10_000) as writer:
                await writer.write(1)
                raise KeyError("the program's own error")

        with pytest.raises(KeyError):
            await program()
        assert await seqs(topic.read()) == [1]

    play(scenario)


def test_what_lingers_is_sent_by_the_loop(shared: Any, name: str) -> None:
    from topics import AsyncTopics

    async def scenario() -> None:
        async with AsyncTopics(shared.url) as server, server.topic(name).writer(linger_ms=1) as writer:
            await writer.write(1)
            async with asyncio.timeout(20):
                while not writer.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [float("nan"), {"a": [float("inf")]}, {1, 2}, object(), b"bytes", "\ud800"])
def test_what_is_no_json_is_not_sent(play: Play, name: str, data: Any) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        with pytest.raises((TypeError, ValueError)):
            await topic.write(data)
        with pytest.raises((TypeError, ValueError)):
            await topic.write_many([1, data])
        async with topic.writer() as writer:
            with pytest.raises((TypeError, ValueError)):
                await writer.write(data)
        assert [found.topic async for found in server.list_topics(name)] == []

    play(scenario)


def test_numbers_beyond_64_bits_come_back(client: Topics, name: str) -> None:
    client.topic(name).write({"n": 2**80})
    assert client.topic(name).get is not None
    assert [record.data for record in client.topic(name).read()] == [{"n": 2**80}]


def test_numbers_that_no_float_holds_keep_nobody_from_the_others(
    client: Topics, shared: TopicsServer, name: str
) -> None:
    """Other programs write them: they are JSON."""
    odd = b'{"records": [{"data": 1}, {"data": 1e400, "meta": {"n": -1e400}}, {"data": %b}]}' % (b"9" * 5000)
    asked = Request(
        f"{shared.url}/v0/topics/{name}", odd, {"Content-Type": "application/json"}, method="POST"
    )
    urlopen(asked).close()
    topic, cursor = client.topic(name), MemoryCursor()
    got = list(topic.read(cursor, limit=2))
    with pytest.raises(InvalidData) as misfit:
        list(topic.read(cursor))
    assert [(record.data, record.meta) for record in got] == [(1, None), (inf, {"n": -inf})]
    assert (misfit.value.seq, topic.get(2).data, topic.get(2).meta) == (3, inf, {"n": -inf})
    with pytest.raises(InvalidData):
        list(client.topic(name, type=int).read(from_seq=1))


# --- types --------------------------------------------------------------------------------------------------


def test_data_of_a_type(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name, type=Order)
        await topic.write(Order("a", 1))
        assert [record.data async for record in topic.read()] == [Order("a", 1)]
        with pytest.raises(InvalidData):
            await topic.write({"sku": 1})
        with pytest.raises(InvalidData):
            await topic.write(Order("a", "many"))  # type: ignore[arg-type]
        assert await seqs(topic.read()) == [1]
        prices = server.topic(name, type=Price)
        with pytest.raises((TypeError, ValueError)):
            await prices.write(Price(float("nan")))

    play(scenario)


class Model:
    """What the SDK asks of a pydantic model."""

    def __init__(self, amount: float | None) -> None:
        self.amount = amount

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"amount": self.amount}

    def model_dump_json(self) -> str:
        shown = None if self.amount is None or isnan(self.amount) else self.amount
        return json.dumps({"amount": shown})

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        found = json.loads(text)
        if not isinstance(found, dict) or found.keys() != {"amount"}:
            raise ValueError("no model")
        return cls(**found)


def test_data_of_a_model(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name, type=Model)
        for amount in (1.5, None):
            await topic.write(Model(amount))
        assert [record.data.amount async for record in topic.read()] == [1.5, None]
        for wrong in (Model(float("nan")), {"amount": 1}, 7):
            with pytest.raises(InvalidData):
                await topic.write(wrong)
        await server.topic(name).write("no model")
        with pytest.raises(InvalidData):
            await seqs(topic.read(from_seq=2))

    play(scenario)


def test_a_misfit_is_raised_in_its_place_and_the_cursor_stays(play: Play, name: str, folder: Any) -> None:
    from topics import FileCursor

    async def scenario(server: Any) -> None:
        plain = server.topic(name)
        await plain.write_many([{"sku": "a", "count": 1}, {"sku": "b"}, {"sku": "c", "count": 3}])
        got = []
        reader = server.topic(name, type=Order).read(FileCursor(folder / "c"))
        got.append((await anext(reader)).data)
        with pytest.raises(InvalidData) as misfit:
            await anext(reader)
        assert (misfit.value.topic, misfit.value.seq, misfit.value.code) == (name, 2, "invalid_data")
        assert got == [Order("a", 1)]
        with pytest.raises(InvalidData):
            await anext(server.topic(name, type=Order).read(FileCursor(folder / "c")))
        with pytest.raises(InvalidData):
            await anext(server.topic(name, type=Order).items(FileCursor(folder / "c")))
        assert await seqs(plain.read(FileCursor(folder / "c"))) == [2, 3]

    play(scenario)


# --- settings -----------------------------------------------------------------------------------------------


def test_settings_make_a_topic_and_are_held_against_it(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        await server.topic(name, durability="fsync", cap_records=5).write(1)
        state = await server.topic(name).describe()
        assert (state.config["durability"], state.config["cap_records"]) == ("fsync", 5)
        await server.topic(name, durable=True).write(2)
        with pytest.raises(ConfigDiffers) as differs:
            await server.topic(name, durability="disk", cap_records=5).write(3)
        assert differs.value.differences == {"durability": ("disk", "fsync")}
        with pytest.raises(ConfigDiffers):
            async with server.topic(name, cap_records=6).writer() as writer:
                await writer.write(4)
        assert (await server.topic(name).describe()).count == 2

    play(scenario)


def test_unknown_settings_are_mistakes(client: Topics, name: str) -> None:
    unknown: Any = {"durabilty": "fsync"}
    for mistake in (client.topic, client.queue):
        with pytest.raises(TypeError, match="durabilty"):
            mistake(name, **unknown)
    with pytest.raises(TypeError, match="durabilty"):
        client.topic(name).create(**unknown)
    with pytest.raises(TypeError, match="durabilty"):
        client.topic(name).configure(**unknown)


def test_create_and_configure(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name, cap_records=3)
        created = await topic.create(ttl_ms=60_000)
        assert (created.created, created.config["cap_records"]) == (True, 3)
        with pytest.raises(Refused) as refused:
            await topic.create()
        assert refused.value.code == "topic_exists"
        changed = await topic.configure(discard="reject")
        kept = {name: changed.config[name] for name in ("cap_records", "ttl_ms", "discard")}
        assert kept == {"cap_records": 3, "ttl_ms": 60_000, "discard": "reject"}
        assert (await topic.configure(durability="fsync")).config["durable"] is True

    play(scenario)


def test_a_crowd_that_shares_a_writer_makes_no_batch_too_large(shared: TopicsServer, name: str) -> None:
    async def scenario() -> None:
        async with AsyncTopics(shared.url) as server:
            topic = server.topic(name)
            async with topic.writer(linger_ms=0) as writer:
                await asyncio.gather(*(writer.write(number) for number in range(15_000)))
            assert writer.count == 15_000
            assert [record.data async for record in topic.read()] == list(range(15_000))

    asyncio.run(scenario())
