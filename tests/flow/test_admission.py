"""What every append and every read passes: turns, pressure, and who is noted as a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import Lab
from topics.core import FRESH
from topics.core.errors import ApiError
from topics.flow.admission import Admission
from topics.flow.load_shedder import SHED_FROM_MS, LoadShedder
from topics.flow.priority_scheduler import PriorityScheduler
from topics.log.topic import Topic


class Holding(PriorityScheduler):
    """Holds everything while it is active."""

    def __init__(self, load_shedder: LoadShedder) -> None:
        super().__init__(load_shedder)
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
        self.load_shedder = LoadShedder()
        self.scheduler = Holding(self.load_shedder)
        self.pulled: list[Topic] = []
        self.admission = Admission(self.lab.engine, self.load_shedder, self.scheduler, self.pulled.append)
        self.client = Client()

    def append(
        self, *, name: str = "t", work: Callable[[Client], None] = Client.work, patient: bool = False
    ) -> None:
        self.admission.enter(self.client, name, 10, work, lambda _: patient)


@pytest.fixture
def entrance(tmp_path: Path) -> Iterator[Entrance]:
    entrance = Entrance(tmp_path / "data")
    entrance.lab.put("t", priority=-500)
    yield entrance
    entrance.lab.kill()


@pytest.mark.parametrize("patient", [False, True])
def test_an_append_waits_while_others_are_read(entrance: Entrance, patient: bool) -> None:
    entrance.scheduler.active = True
    entrance.append(patient=patient)
    assert (entrance.client.entered, entrance.scheduler.asked) == (0, [(-500, 10, patient)])
    entrance.scheduler.works[0]()
    assert (entrance.client.entered, entrance.client.errors) == (1, [])


def test_an_error_of_work_that_waited_goes_to_the_caller(entrance: Entrance) -> None:
    entrance.scheduler.active = True
    entrance.append(work=Client.fail)
    entrance.scheduler.works[0]()
    assert [type(error) for error in entrance.client.errors] == [ApiError]


def test_a_caller_that_closed_while_waiting_does_not_enter(entrance: Entrance) -> None:
    entrance.scheduler.active = True
    entrance.append()
    entrance.client.closed = True
    entrance.scheduler.works[0]()
    assert entrance.client.entered == 0


def test_reads_of_copies_raise_the_priority_of_appends_to_the_source_but_not_of_reads(
    tmp_path: Path,
) -> None:
    lab = RouterLab(tmp_path)
    lab.route("r", "source", "copies")
    load_shedder = LoadShedder()
    scheduler = Holding(load_shedder)
    admission = Admission(lab.engine, load_shedder, scheduler, lab.routers.pull)
    admission.read("copies")
    scheduler.active = True
    for name in ("source", "copies", "none"):
        admission.read_in_turn(Client(), name, 10, Client.work)
    admission.enter(Client(), "source", 10, Client.work)
    assert [priority for priority, *_ in scheduler.asked] == [0, FRESH, 0, FRESH]
    load_shedder.lag_ms = 1000.0
    with pytest.raises(ApiError, match="pressure"):
        admission.read("source")
    admission.read("copies")
    lab.kill()


def test_load_refuses_appends_unless_they_are_patient(entrance: Entrance) -> None:
    entrance.load_shedder.lag_ms = 600.0
    with pytest.raises(ApiError) as refused:
        entrance.append()
    assert refused.value.code == "throttled"
    assert entrance.client.entered == 0
    entrance.append(patient=True)
    entrance.append(name="new")
    assert entrance.client.entered == 2


@pytest.mark.parametrize("turn", ["at once", "waited", "read"])
def test_load_shedding_begins_at_the_bound_of_the_governor(entrance: Entrance, turn: str) -> None:
    entrance.scheduler.active = turn == "waited"
    if turn == "waited":
        entrance.append()
    entrance.load_shedder.lag_ms = SHED_FROM_MS
    if turn == "waited":
        entrance.scheduler.works[0]()
        assert len(entrance.client.errors) == 1
    else:
        with pytest.raises(ApiError, match="pressure"):
            entrance.admission.read("t") if turn == "read" else entrance.append()
    assert entrance.client.entered == 0


@pytest.mark.parametrize(
    ("config", "protected"),
    [
        ({"priority": None, "auto_priority": True}, FRESH),
        ({"priority": 0, "auto_priority": True}, 0),
        ({"priority": None, "auto_priority": False}, 0),
    ],
)
def test_a_read_protects_a_topic_without_its_own_priority_as_fresh(
    entrance: Entrance, config: dict[str, object], protected: int
) -> None:
    entrance.lab.put("u", **config)
    entrance.admission.read("u")
    assert entrance.scheduler.protected == [protected]


def test_a_coroutine_waits_for_its_admission(entrance: Entrance) -> None:
    async def scenario() -> None:
        done: list[int] = []
        await entrance.admission.enter_in_turn("t", 10, lambda: done.append(1))
        entrance.scheduler.active = True
        waiting = asyncio.ensure_future(entrance.admission.enter_in_turn("t", 10, lambda: done.append(2)))
        await asyncio.sleep(0)
        assert done == [1]
        entrance.scheduler.works[0]()
        await waiting
        assert done == [1, 2]
        refused = asyncio.ensure_future(entrance.admission.enter_in_turn("t", 10, lambda: done.append(3)))
        await asyncio.sleep(0)
        entrance.load_shedder.lag_ms = 600.0
        entrance.scheduler.works[1]()
        with pytest.raises(ApiError, match="pressure"):
            await refused
        cancelled = asyncio.ensure_future(
            entrance.admission.enter_in_turn("t", 10, lambda: done.append(4), is_patient=True)
        )
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        entrance.scheduler.works[2]()
        assert done == [1, 2]

    asyncio.run(scenario())


def test_a_read_is_noted_and_pulls_copies(entrance: Entrance) -> None:
    entrance.lab.put("high", priority=900)
    topic = entrance.admission.read("high")
    assert topic.last_read_ts == entrance.lab.clock.now_ms()
    assert entrance.scheduler.protected == [900]
    assert entrance.pulled == [topic]


def test_a_read_refused_under_load_is_not_noted(entrance: Entrance) -> None:
    entrance.load_shedder.lag_ms = 600.0
    with pytest.raises(ApiError) as refused:
        entrance.admission.read("t")
    assert refused.value.code == "throttled"
    assert entrance.lab.topic("t").last_read_ts is None
    assert entrance.scheduler.protected == []
