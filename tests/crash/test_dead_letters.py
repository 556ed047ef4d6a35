"""A job on its way to the dead letters, or back, is in one of two topics; never in both, never in neither."""

from __future__ import annotations

import random

import pytest

from tests.crash.disk import Crash, SimulatedDisk
from tests.crash.installation import Installation
from tests.crash.model import observe
from tests.support.appending import append
from topics.core.clock import ManualClock
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.flow.queues.dead_letters import Redrive
from topics.flow.queues.dispatcher import Claim
from topics.log.engine import Engine
from topics.log.lifecycle import put_topic

LEASE_MS = 1000
# Enough for some tear to fall between what is written for the letters and what for the queue.
LUCKS = 100
JOBS = 7


def refused(error: ApiError) -> None:
    raise AssertionError(error)


def put(engine: Engine, name: str, **config: object) -> None:
    put_topic(engine, name, TopicConfig(**config), lambda _: None, refused)  # type: ignore[arg-type]
    engine.queue.sync_now()


def claim_all(here: Installation) -> None:
    """Jobs delivered as often as allowed move when they would be handed out again."""
    queue = here.queues.of(here.engine.require("jobs"))
    queue.serve([Claim("worker", JOBS, LEASE_MS, lambda _: None, refused)])
    here.engine.queue.sync_now()
    here.engine.queue.sync_now()


def prepared(durability: str, *, durable_leases: bool) -> tuple[SimulatedDisk, ManualClock, Installation]:
    """Every job has been handed out once, and not been heard of since."""
    disk, clock = SimulatedDisk(), ManualClock()
    here = Installation(disk, clock)
    put(here.engine, "letters", durability=durability)
    put(
        here.engine,
        "jobs",
        type="queue",
        durability=durability,
        max_deliveries=1,
        dead_letter="letters",
        lease_ms=LEASE_MS,
        leases_durable=durable_leases,
    )
    body = b'{"records":[%b]}' % b",".join(b'{"data":"job-%d"}' % number for number in range(JOBS))
    append(here.engine, "jobs", body, lambda _: None, refused)
    here.engine.queue.sync_journal()
    claim_all(here)
    here.engine.queue.sync_journal()
    clock.advance(LEASE_MS + 1)
    return disk, clock, here


def redrive_all(here: Installation) -> None:
    engine = here.engine
    queue = engine.require("jobs")
    walk = Redrive(engine, engine.require("letters"), set(), lambda _: queue)
    for part in walk.step():
        walk.move(part, lambda: None, refused)
    engine.queue.sync_now()
    engine.queue.sync_now()


def given_up(durability: str) -> tuple[SimulatedDisk, ManualClock, Installation]:
    disk, clock, here = prepared(durability, durable_leases=False)
    claim_all(here)
    here.engine.queue.sync_journal()
    return disk, clock, here


def jobs_in(engine: Engine, name: str) -> set[bytes]:
    rows, _ = observe(engine, engine.require(name))
    return {row.split(b'"data":"')[1].split(b'"')[0] for row in rows.values()}


@pytest.mark.parametrize("durable_leases", [False, True])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_job_is_always_in_exactly_one_place(durability: str, durable_leases: bool) -> None:
    disk, _, here = prepared(durability, durable_leases=durable_leases)
    before = disk.mutations
    claim_all(here)
    assert len(jobs_in(here.engine, "letters")) == JOBS
    assert jobs_in(here.engine, "jobs") == set()
    for index in range(1, disk.mutations - before + 1):
        for luck in (None, *range(LUCKS)):
            stopped, clock, here = prepared(durability, durable_leases=durable_leases)
            stopped.crash_at = stopped.mutations + index
            with pytest.raises(Crash):
                claim_all(here)
            if luck is None:
                stopped.kill()
            else:
                stopped.crash(random.Random(luck))
            again = Installation(stopped, clock).engine
            waiting, moved = jobs_in(again, "jobs"), jobs_in(again, "letters")
            assert waiting | moved == {b"job-%d" % number for number in range(JOBS)}
            assert not waiting & moved


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_letter_on_its_way_back_is_always_in_exactly_one_place(durability: str) -> None:
    disk, _, here = given_up(durability)
    before = disk.mutations
    redrive_all(here)
    assert len(jobs_in(here.engine, "jobs")) == JOBS
    assert jobs_in(here.engine, "letters") == set()
    for index in range(1, disk.mutations - before + 1):
        for luck in (None, *range(LUCKS // 4)):
            stopped, clock, here = given_up(durability)
            stopped.crash_at = stopped.mutations + index
            with pytest.raises(Crash):
                redrive_all(here)
            if luck is None:
                stopped.kill()
            else:
                stopped.crash(random.Random(luck))
            again = Installation(stopped, clock).engine
            waiting, left = jobs_in(again, "jobs"), jobs_in(again, "letters")
            assert waiting | left == {b"job-%d" % number for number in range(JOBS)}
            assert not waiting & left
