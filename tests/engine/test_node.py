"""A node goes from opened over recovered and running to closed, and holds its directory meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engine.lab import NodeLab
from topics.core.errors import ConfigError
from topics.core.settings import Settings
from topics.engine.node import Flushed, Node, State
from topics.flow.checkpoints import ColdTier
from topics.storage.filesystem import LockHeld


def settings(directory: Path, **more: object) -> Settings:
    return Settings(data_dir=str(directory), **more)  # type: ignore[arg-type]


async def run_once(node: Node, seen: list[State]) -> None:
    node.run()
    seen.append(node.state)
    await node.close()
    seen.append(node.state)


def test_from_opened_to_closed(tmp_path: Path) -> None:
    node = Node(settings(tmp_path))
    seen = [node.state]
    told: list[float] = []
    node.recover(told.append)
    seen.append(node.state)
    assert told[-1] == node.progress == 1.0
    asyncio.run(run_once(node, seen))
    assert seen == [State.OPENED, State.RECOVERED, State.RUNNING, State.CLOSED]
    NodeLab(tmp_path).stop()


def test_closing_tells_what_was_flushed(tmp_path: Path) -> None:
    node = Node(settings(tmp_path))
    assert node.is_new
    node.recover()

    async def write_and_close() -> Flushed | None:
        node.run()
        unsynced = node.engine.journal.position - node.engine.journal.synced
        node.engine.rotate()
        flushed = await node.close()
        assert flushed is not None
        assert flushed.journal_bytes >= unsynced
        return flushed

    flushed = asyncio.run(write_and_close())
    assert flushed is not None
    assert (flushed.is_clean, flushed.is_checkpointed, flushed.sealed_runs) == (True, True, 0)
    assert flushed.journal_bytes > 0
    assert asyncio.run(node.close()) is None
    again = Node(settings(tmp_path))
    assert not again.is_new
    again.home.release()


def test_a_directory_has_one_node(tmp_path: Path) -> None:
    lab = NodeLab(tmp_path)
    with pytest.raises(LockHeld):
        Node(settings(tmp_path))
    lab.stop()
    NodeLab(tmp_path).stop()


def test_a_node_that_cannot_be_opened_holds_nothing(tmp_path: Path) -> None:
    data, cold = tmp_path / "data", tmp_path / "cold"
    NodeLab(data).stop()
    cold.mkdir()
    (cold / "0000000000000007.segment").write_bytes(b"")
    (data / ".topics.cold").write_text(f"{data}\n{cold}\n")
    with pytest.raises(ConfigError, match=r"remove .*\.topics\.cold"):
        Node(settings(data, cold_dir=str(tmp_path / "other")))
    (data / ".topics.cold").unlink()
    NodeLab(data).stop()


def test_a_recovery_that_is_given_up(tmp_path: Path) -> None:
    class GivenUp(Exception):
        pass

    def give_up(_: float) -> None:
        raise GivenUp

    node = Node(settings(tmp_path))
    with pytest.raises(GivenUp):
        node.recover(give_up)
    assert (node.state, node.progress) == (State.OPENED, 0.0)
    asyncio.run(node.close())
    with pytest.raises(LockHeld):
        Node(settings(tmp_path))
    node.leave(clean=False)
    NodeLab(tmp_path).stop()


def test_extensions_stand_in_the_order_in_which_snapshots_name_them(tmp_path: Path) -> None:
    lab = NodeLab(tmp_path)
    assert [extension.name for extension in lab.engine.extensions] == [
        "lives",
        "keys",
        "named_cursors",
        "pipelines",
        "identities",
        "queues",
        "queue_losses",
        "routers",
    ]
    lab.stop()


def test_a_cold_directory_with_a_slash_at_its_end(tmp_path: Path) -> None:
    """It is the same directory: what lies there, and is not ours, stays."""
    cold = tmp_path / "cold"
    lab = NodeLab(tmp_path / "data", cold_dir=f"{cold}/", hot_retain_segments=0)
    lab.write_each("t", 8)
    lab.checkpoint(everything=True)
    tiers = ColdTier(lab.engine)
    for number in asyncio.run(tiers.due()):
        assert tiers.copy(number)
        tiers.switch(number)
    moved = sorted(cold.glob("*.segment"))
    assert len(moved) == 2
    moved[0].write_bytes(b"of another")
    lab.delete("t", before=100)
    for _ in range(3):
        lab.write("t", 1)
        lab.checkpoint(everything=True)
    assert sorted(cold.glob("*.segment")) == moved[:1]
    cold.rename(tmp_path / "away")
    assert not lab.node.home.has(str(moved[0]))
    lab.kill()
