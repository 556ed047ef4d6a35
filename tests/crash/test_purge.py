"""Power goes in the middle of a purge: nothing is lost or comes back, a second one finishes the work."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from tests.crash.disk import Crash, SimulatedDisk
from tests.log.harness import Lab
from topics.flow.checkpoints import Checkpoints
from topics.log.read.render import Shape
from topics.log.write.commit_loop import CommitLoop
from topics.ops.purge import Purge, Purges

SECRET = "a-secret"
TAGGED = Shape(tags=True)


class SimulatedLab(Lab):
    def __init__(self, **settings: Any) -> None:
        self.simulated = SimulatedDisk()
        super().__init__("/data", **settings)

    def open(self) -> None:
        self.disk = self.simulated  # type: ignore[assignment]
        super().open()

    def content(self) -> dict[str, Any]:
        names = self.engine.names_after("", "")
        return {name: (self.state(name), self.diff(name, shape=TAGGED).rows) for name in names}

    def purge(self) -> Purge:
        """Ends with the machine, if that ends."""

        async def driven() -> Purge:
            commit = CommitLoop(self.engine, asyncio.get_running_loop())
            purge = Purge("p", None, self.engine.now())
            try:
                await Purges(self.engine, Checkpoints(self.engine, commit, self.checkpointer)).run(purge)
            finally:
                commit.close()
            return purge

        return asyncio.run(driven())

    def found(self) -> list[str]:
        """Files in which a secret can be read."""
        holding = []
        for directory in ("journal", "segments", "snapshots"):
            for name in self.simulated.list(f"/data/{directory}"):
                path = os.path.join("/data", directory, name)
                if path in self.simulated.directories:
                    continue  # what recovery has put aside
                file = self.simulated.open(path)
                if SECRET.encode() in file.read(file.size(), 0):
                    holding.append(name)
                file.close()
        return holding


def furnished() -> SimulatedLab:
    """Deletions in the tail, in sealed runs, and whole runs and topics that are gone."""
    lab = SimulatedLab()
    for name in ("t", "u", "gone"):
        lab.put(name, durability="fsync")
    for number in range(10):
        for name in ("t", "u", "gone"):
            doomed = number % 3 == 1
            lab.write(name, {"data": f"{SECRET}{number}" if doomed else number, "tag": f"k{number % 3}"})
    lab.checkpoint()
    lab.delete("t", match="k1")
    lab.checkpoint()
    lab.delete("u", before=9)
    lab.drop("gone")
    return lab


def mutations_of_a_purge() -> int:
    lab = furnished()
    before = lab.simulated.mutations
    assert lab.found()
    assert lab.purge().state == "done"
    assert lab.found() == []
    return lab.simulated.mutations - before


@pytest.mark.parametrize(("power", "step"), [(True, 1), (False, 4)])
def test_at_any_point(power: bool, step: int) -> None:
    total = mutations_of_a_purge()
    assert total > 30
    for point in range(1, total + 1, step):
        lab = furnished()
        before = lab.content()
        lab.simulated.crash_at = lab.simulated.mutations + point
        with pytest.raises(Crash):
            lab.purge()
        lab.simulated.crash(random.Random(point)) if power else lab.simulated.kill()
        lab.open()
        assert lab.content() == before, point
        assert lab.purge().state == "done"
        assert lab.found() == []
        assert lab.content() == before, point
        lab.simulated.crash(random.Random(-point))
        lab.open()
        assert lab.content() == before, point
