"""Topics as columns: what a scan gives, with no loss overlooked, and what is missing is named."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.sdk.conftest import Play
from tests.sdk.test_reading import fill, seqs
from topics import ConfigDiffers, RecordsLost, Refused, TopicNotFound, TopicRestarted, Topics


def test_a_topic_as_a_table_and_back(play: Play, client: Topics, name: str) -> None:
    fill(client, name, 2500)
    client.topic(name).write("last", tag="t", node="n", meta={"m": 1})

    async def scenario(server: Any) -> None:
        table = await server.topic(name).to_arrow()
        assert table.column_names == ["seq", "ts", "node", "tag", "data", "meta"]
        assert table["seq"].to_pylist() == list(range(1, 2502))
        assert json.loads(table["data"][6].as_py()) == {"n": 7}
        rest = await server.topic(name).to_arrow(from_seq=2499)
        assert rest["seq"].to_pylist() == [2500, 2501]
        copy = server.topic(name + "-copy", durability="fsync")
        ack = await copy.write_arrow(table)
        assert (ack.first_seq, ack.last_seq, ack.count, ack.deduped) == (1, 2501, 2501, False)
        (last,) = [record async for record in copy.read(from_seq=2500)]
        assert (last.data, last.tag, last.node, last.meta) == ("last", "t", "n", {"m": 1})
        assert (await copy.describe()).config["durability"] == "fsync"

    play(scenario)


def test_mistakes_in_tables(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        topic = server.topic(name)
        with pytest.raises(TypeError):
            await topic.write_arrow([1])
        with pytest.raises(ValueError):
            await topic.write_arrow(pa.table({"data": pa.array([], pa.string())}))
        with pytest.raises(Refused):
            await topic.write_arrow(pa.table({"data": ["no json"]}))
        with pytest.raises(Refused):
            await topic.write_arrow(pa.table({"data": ["1"], "tga": ["x"]}))
        with pytest.raises(TopicNotFound):
            await topic.to_arrow()
        await topic.write_arrow(pa.table({"data": ["1"]}))
        with pytest.raises(ConfigDiffers):
            await server.topic(name, cap_records=7).write_arrow(pa.table({"data": ["1"]}))
        assert await seqs(topic.read()) == [1]

    play(scenario)


def test_loss_is_raised_by_columns_too(play: Play, client: Topics, name: str, lose: Any) -> None:
    fill(client, name, 5)
    lose(name, 2)

    async def scenario(server: Any) -> None:
        topic, told = server.topic(name), []
        with pytest.raises(RecordsLost) as lost:
            await topic.to_arrow()
        assert (lost.value.gap_from, lost.value.gap_to) == (1, 2)
        assert (await topic.to_arrow(from_seq=2)).num_rows == 3
        assert (await topic.to_arrow(on_loss=told.append)).num_rows == 3
        assert [loss.gap_to for loss in told] == [2]
        assert (await topic.to_arrow(ignore_loss="test")).num_rows == 3
        assert topic.losses_ignored == 1
        with pytest.raises(TypeError):
            await topic.to_arrow(ignore_loss=True)
        with pytest.raises(TopicRestarted):
            await topic.to_arrow(from_seq=99)

    play(scenario)


@pytest.mark.parametrize("method", ["to_arrow", "to_pandas", "to_polars", "write_arrow"])
def test_what_is_missing_is_named(play: Play, name: str, method: str, monkeypatch: Any) -> None:
    async def scenario(server: Any) -> None:
        for module in ("pyarrow", "pandas", "polars"):
            monkeypatch.setitem(sys.modules, module, None)
        arguments = [object()] if method == "write_arrow" else []
        with pytest.raises(ImportError, match=r"topics-log\[arrow\]"):
            await getattr(server.topic(name), method)(*arguments)

    play(scenario)


def test_other_frames_are_made_of_the_table(play: Play, client: Topics, name: str, monkeypatch: Any) -> None:
    """pandas and polars are no part of what is tested with; that they are asked is."""
    fill(client, name, 2)

    async def scenario(server: Any) -> None:
        monkeypatch.setitem(
            sys.modules, "polars", SimpleNamespace(from_arrow=lambda table: ("polars", table))
        )
        kind, table = await server.topic(name).to_polars(from_seq=1)
        assert (kind, table["seq"].to_pylist()) == ("polars", [2])

    play(scenario)
