"""A bounded slice of the long random runs: `make simulate SEED=… STEPS=…` runs as many steps as you like."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.crash.faults import Fault
from tests.crash.simulator import RECOVERY, Simulation

SEEDS = int(os.environ.get("TOPICS_SIMULATE_SEEDS", "4"))
STEPS = int(os.environ.get("TOPICS_SIMULATE_STEPS", "2500"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history(seed: int) -> None:
    simulation = Simulation(seed)
    try:
        simulation.run(STEPS)
    except BaseException:
        print(f"make simulate SEED={seed} STEPS={simulation.steps}")
        raise
    finally:
        simulation.close()


def test_a_seed_repeats_itself() -> None:
    endings = []
    for _ in range(2):
        simulation = Simulation(99)
        simulation.run(700)
        # Parts of stages have names of their own each time, until they are complete.
        files = [item for item in simulation.world.disk.contents().items() if "/stages/" not in item[0]]
        endings.append((files, simulation.met, simulation.struck))
        simulation.close()
    assert endings[0] == endings[1]


def test_every_fault_meets_every_operation() -> None:
    """No need for chance: each pair in turn, in worlds of their own."""
    simulation = Simulation(5)
    for fault in Fault:
        for operation in (*simulation.actors.steps, RECOVERY):
            simulation.meet(fault, operation)
    simulation.close()
    assert not simulation.empty_cells()
    assert all(sum(simulation.struck[fault, op] for op in simulation.actors.steps) for fault in Fault)
    assert "power loss" in simulation.table()
