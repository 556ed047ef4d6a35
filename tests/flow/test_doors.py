"""What every append and every read passes: turns, pressure, and who is noted as a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import Lab
from topics.flow.doors import Doors
from topics.flow.governor import SHED_FROM_MS, Governor
from topics.flow.pacing import GAP, Pacer
from topics.log.topic import Topic
from topics.values import FRESH
from topics.values.errors import ApiError


class Holding(Pacer):
    """Holds everything while it is active."""

    def __init__(self, governor: Governor) -> None:
        super().__init__(governor)
        self.asked: list[tuple[int, int, bool]] = []
        self.works: list[Callable[[], None]] = []
        self.protected: list[int] = []

    def outranks(self, priority: int) -> bool:
        return self.active

    def holds(self, priority: int, size: int, work: Callable[[], None], *, patient: bool) -> bool:
        self.asked.append((priority, size, patient))
        self.works.append(work)
        return True

    def protect(self, priority: int) -> None:
        self.protected.append(priority)


class Client:
    def __init__(self) -> None:
        self.closed = False
        self.errors: list[Exception] = []
        self.entered = 0

    def fail_with(self, error: Exception) -> None:
        self.errors.append(error)

    def work(self) -> None:
        self.entered += 1

    def fail(self) -> None:
        raise ApiError("topic_full", "no room")


class Entrance:
    def __init__(self, path: Path) -> None:
        self.lab = Lab(path)
        self.governor = Governor()
        self.pacer = Holding(self.governor)
        self.pulled: list[Topic] = []
        self.doors = Doors(self.lab.engine, self.governor, self.pacer, self.pulled.append)
        self.client = Client()

    def append(
        self, *, name: str = "t", work: Callable[[Client], None] = Client.work, patient: bool = False
    ) -> None:
        self.doors.append(self.client, name, 10, work, lambda _: patient)


@pytest.fixture
def entrance(tmp_path: Path) -> Iterator[Entrance]:
    entrance = Entrance(tmp_path / "data")
    entrance.lab.put("t", priority=-500)
    yield entrance
    entrance.lab.kill()


def test_in_calm_times_the_door_stands_open(entrance: Entrance) -> None:
    entrance.append()
    assert (entrance.client.entered, entrance.pacer.asked) == (1, [])


def test_an_error_of_work_that_did_not_wait_is_raised(entrance: Entrance) -> None:
    with pytest.raises(ApiError):
        entrance.append(work=Client.fail)
    assert entrance.client.errors == []


@pytest.mark.parametrize("patient", [False, True])
def test_it_enters_when_its_turn_comes(entrance: Entrance, patient: bool) -> None:
    entrance.pacer.active = True
    entrance.append(patient=patient)
    assert (entrance.client.entered, entrance.pacer.asked) == (0, [(-500, 10, patient)])
    entrance.pacer.works[0]()
    assert (entrance.client.entered, entrance.client.errors) == (1, [])


def test_an_error_of_work_that_waited_goes_to_the_caller(entrance: Entrance) -> None:
    entrance.pacer.active = True
    entrance.append(work=Client.fail)
    entrance.pacer.works[0]()
    assert [type(error) for error in entrance.client.errors] == [ApiError]


def test_a_caller_that_has_gone_meanwhile_wants_nothing(entrance: Entrance) -> None:
    entrance.pacer.active = True
    entrance.append()
    entrance.client.closed = True
    entrance.pacer.works[0]()
    assert entrance.client.entered == 0


def test_a_topic_that_is_not_there_yet_counts_as_ordinary(entrance: Entrance) -> None:
    entrance.pacer.active = True
    entrance.append(name="new")
    assert entrance.pacer.asked == [(0, 10, False)]


def test_whoever_matters_enough_is_let_pass_while_others_are_read(entrance: Entrance) -> None:
    pacer = Pacer(entrance.governor)
    doors = Doors(entrance.lab.engine, entrance.governor, pacer, entrance.pulled.append)
    entrance.lab.put("u", priority=FRESH - GAP)
    entrance.lab.put("v", priority=FRESH - GAP + 1)

    def passing() -> list[str]:
        return [name for name in ("t", "u", "v", "new") if doors.let_pass(name)]

    async def scenario() -> None:
        assert passing() == ["t", "u", "v", "new"]
        pacer.protect(FRESH)
        assert not doors.stand_open
        assert passing() == ["v"]
        entrance.governor.lag_ms = SHED_FROM_MS
        assert passing() == []

    asyncio.run(scenario())


def test_whoever_is_let_pass_is_not_asked_for_patience(entrance: Entrance) -> None:
    pacer = Pacer(entrance.governor)
    doors = Doors(entrance.lab.engine, entrance.governor, pacer, entrance.pulled.append)
    entrance.lab.put("v", priority=FRESH)
    asked: list[str] = []

    def append(name: str) -> None:
        doors.append(entrance.client, name, 10, Client.work, lambda _: bool(asked.append(name)))

    async def scenario() -> None:
        pacer.protect(FRESH)
        for name in ("v", "t", "new"):
            append(name)
        assert asked == ["t", "new"]
        entrance.governor.lag_ms = SHED_FROM_MS
        append("v")
        assert asked == ["t", "new", "v"]

    asyncio.run(scenario())


def test_whoever_writes_what_a_watcher_gets_copies_of_is_let_pass(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path)
    lab.route("r", "source", "copies")
    lab.put("other")
    pacer = Pacer(Governor())
    doors = Doors(lab.engine, Governor(), pacer, lab.routers.pull)

    async def scenario() -> None:
        doors.read("copies")
        assert [doors.let_pass(name) for name in ("source", "copies", "other")] == [True, True, False]

    asyncio.run(scenario())
    lab.kill()


def test_whoever_reads_what_others_get_copies_of_is_served_by_the_priority_of_that_topic(
    tmp_path: Path,
) -> None:
    """As its state says: readers of copies matter to those who write it, and to nobody else."""
    lab = RouterLab(tmp_path)
    lab.route("r", "source", "copies")
    governor = Governor()
    pacer = Holding(governor)
    doors = Doors(lab.engine, governor, pacer, lab.routers.pull)
    doors.read("copies")
    pacer.active = True
    for name in ("source", "copies", "none"):
        doors.read_in_turn(Client(), name, 10, Client.work)
    doors.append(Client(), "source", 10, Client.work)
    assert [priority for priority, *_ in pacer.asked] == [0, FRESH, 0, FRESH]
    governor.lag_ms = 1000.0
    with pytest.raises(ApiError, match="pressure"):
        doors.read("source")
    doors.read("copies")
    lab.kill()


def test_pressure_refuses_writers_unless_they_are_patient(entrance: Entrance) -> None:
    entrance.governor.lag_ms = 600.0
    with pytest.raises(ApiError) as refused:
        entrance.append()
    assert refused.value.code == "throttled"
    assert entrance.client.entered == 0
    entrance.append(patient=True)
    entrance.append(name="new")
    assert entrance.client.entered == 2


@pytest.mark.parametrize("turn", ["at once", "waited", "read"])
def test_refusals_begin_with_the_lag_of_the_governor(entrance: Entrance, turn: str) -> None:
    entrance.pacer.active = turn == "waited"
    if turn == "waited":
        entrance.append()
    entrance.governor.lag_ms = SHED_FROM_MS
    if turn == "waited":
        entrance.pacer.works[0]()
        assert len(entrance.client.errors) == 1
    else:
        with pytest.raises(ApiError, match="pressure"):
            entrance.doors.read("t") if turn == "read" else entrance.append()
    assert entrance.client.entered == 0


@pytest.mark.parametrize(
    ("config", "protected"),
    [
        ({"priority": None, "auto_priority": True}, FRESH),
        ({"priority": 0, "auto_priority": True}, 0),
        ({"priority": None, "auto_priority": False}, 0),
    ],
)
def test_a_topic_without_a_priority_of_its_own_is_protected_as_one_that_was_just_read(
    entrance: Entrance, config: dict[str, object], protected: int
) -> None:
    entrance.lab.put("u", **config)
    entrance.doors.read("u")
    assert entrance.pacer.protected == [protected]


def test_pressure_that_came_while_it_waited_refuses_it_too(entrance: Entrance) -> None:
    entrance.pacer.active = True
    entrance.append()
    entrance.governor.lag_ms = 600.0
    entrance.pacer.works[0]()
    assert entrance.client.entered == 0
    assert [error.code for error in entrance.client.errors if isinstance(error, ApiError)] == ["throttled"]


def test_a_coroutine_can_wait_at_the_door(entrance: Entrance) -> None:
    async def scenario() -> None:
        done: list[int] = []
        await entrance.doors.append_in_turn("t", 10, lambda: done.append(1))
        entrance.pacer.active = True
        waiting = asyncio.ensure_future(entrance.doors.append_in_turn("t", 10, lambda: done.append(2)))
        await asyncio.sleep(0)
        assert done == [1]
        entrance.pacer.works[0]()
        await waiting
        assert done == [1, 2]
        refused = asyncio.ensure_future(entrance.doors.append_in_turn("t", 10, lambda: done.append(3)))
        await asyncio.sleep(0)
        entrance.governor.lag_ms = 600.0
        entrance.pacer.works[1]()
        with pytest.raises(ApiError, match="pressure"):
            await refused
        cancelled = asyncio.ensure_future(
            entrance.doors.append_in_turn("t", 10, lambda: done.append(4), patient=True)
        )
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        entrance.pacer.works[2]()
        assert done == [1, 2]

    asyncio.run(scenario())


def test_a_reader_is_noted_and_gets_what_is_owed(entrance: Entrance) -> None:
    entrance.lab.put("high", priority=900)
    topic = entrance.doors.read("high")
    assert topic.last_read_ts == entrance.lab.clock.now_ms()
    assert entrance.pacer.protected == [900]
    assert entrance.pulled == [topic]


def test_a_reader_does_not_see_what_is_too_old(entrance: Entrance) -> None:
    entrance.lab.put("t", ttl_ms=1000)
    entrance.lab.write("t", 1)
    entrance.lab.clock.advance(2000)
    assert entrance.doors.read("t").live_count == 0


def test_pressure_refuses_readers_and_leaves_no_trace_of_them(entrance: Entrance) -> None:
    entrance.governor.lag_ms = 600.0
    with pytest.raises(ApiError) as refused:
        entrance.doors.read("t")
    assert refused.value.code == "throttled"
    assert entrance.lab.topic("t").last_read_ts is None
    assert entrance.pacer.protected == []


def test_a_topic_that_is_not_there_cannot_be_read(entrance: Entrance) -> None:
    entrance.governor.lag_ms = 600.0
    with pytest.raises(ApiError) as refused:
        entrance.doors.read("nothing")
    assert refused.value.code == "topic_not_found"


def test_readers_take_turns_too(entrance: Entrance) -> None:
    entrance.doors.read_in_turn(entrance.client, "t", 10, Client.work)
    entrance.pacer.active = True
    entrance.doors.read_in_turn(entrance.client, "t", 10, Client.work)
    assert entrance.client.entered == 1
    entrance.pacer.works[0]()
    assert entrance.client.entered == 2
