"""Who among the watchers is served when, and how much of a turn each of them gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.watched import Scenario, Watched
from topics.flow.load_shedder import LAG_MS, Level
from topics.flow.watch import fanout as fanout_module
from topics.log.topic import Topic


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: how much is served in a turn is a matter of work here."""
    monkeypatch.setattr(fanout_module, "TURN_S", 60.0)


def test_a_turn_ends_in_time_however_long_deliveries_take(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        listeners = [w.watch()[0] for _ in range(5)]
        await w.settle()
        for listener in listeners:
            listener.heard()
        clock = [0.0]

        def later() -> float:
            clock[0] += fanout_module.TURN_S / 3
            return clock[0]

        monkeypatch.setattr(fanout_module, "perf_counter", later)
        w.lab.write("t", 1)
        served = []
        for _ in range(4):
            await asyncio.sleep(0)
            served.append(sum(bool(listener.told) for listener in listeners))
        assert served == [2, 4, 5, 5]

    play(scenario)


def test_a_turn_does_a_bounded_amount_of_work(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "TURN_WORK", 10)
        w.lab.put("t")
        w.lab.put("other")
        listeners = [w.watch()[0] for _ in range(25)]
        other, _ = w.watch("other")
        await w.settle()
        for listener in (*listeners, other):
            listener.heard()
        w.lab.write("t", 1)
        w.lab.write("other", 1)
        served = []
        for _ in range(5):
            await asyncio.sleep(0)
            served.append((sum(bool(listener.told) for listener in listeners), bool(other.told)))
        # A few at a time, and the other topic does not wait for all of them.
        assert 0 < served[0][0] <= 10
        assert served[0][1]
        assert served[-1] == (25, True)

    play(scenario)


def test_a_higher_priority_gets_a_larger_share_of_each_turn(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "TURN_WORK", 24)
        w.lab.put("low", priority=10)
        w.lab.put("high", priority=800)
        low = [w.watch("low")[0] for _ in range(40)]
        high = [w.watch("high")[0] for _ in range(40)]
        await w.settle()
        for listener in (*low, *high):
            listener.heard()
        w.lab.write("low", 1)
        w.lab.write("high", 1)
        await asyncio.sleep(0)
        counts = [sum(bool(listener.told) for listener in group) for group in (low, high)]
        assert 0 < counts[0] < counts[1]
        await w.settle()
        assert all(listener.told for listener in (*low, *high))

    play(scenario)


def test_under_pressure_low_priorities_wait_but_not_for_ever(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "MERGE_S", 0.0)
        monkeypatch.setattr(fanout_module, "DEFER_S", 0.0)
        w.lab.put("low", priority=-1)
        w.lab.put("plain")
        low, _ = w.watch("low")
        plain, _ = w.watch("plain")
        await w.settle()
        low.heard(), plain.heard()
        w.load_shedder.lag_ms = 200.0
        w.lab.write("low", 1)
        w.lab.write("plain", 1)
        await asyncio.sleep(0.01)
        assert plain.heard() == [("record", [1]), ("caught-up", 1)]
        assert low.heard() == []
        monkeypatch.setattr(fanout_module, "LONGEST_DEFER_S", 0.0)
        await asyncio.sleep(0.01)
        assert low.heard() == [("record", [1]), ("caught-up", 1)]
        monkeypatch.setattr(fanout_module, "LONGEST_DEFER_S", 10.0)
        w.lab.write("low", 2)
        w.lab.write("low", 3)
        await asyncio.sleep(0.01)
        assert low.heard() == []
        w.load_shedder.lag_ms = 0.0
        await asyncio.sleep(0.01)
        assert low.heard() == [("record", [2, 3]), ("caught-up", 3)]

    play(scenario)


def test_leaving_leaves_nothing_behind(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1)
        topic = w.lab.topic("t")
        subscriptions = [w.watch()[1] for _ in range(3)]
        assert len(topic.listeners) == 1
        for subscription in subscriptions:
            w.fanout.detach(subscription)
            w.fanout.detach(subscription)
        await w.settle()
        assert not topic.listeners
        assert not w.fanout.topics

    play(scenario)


def test_a_turn_that_comes_after_everybody_has_left_touches_nothing(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        w.lab.write("t", 1)
        _, subscription = w.watch()
        w.fanout.detach(subscription)
        # What it would ask first; at the end of a shutdown there is no engine left to answer.
        with monkeypatch.context() as patch:
            patch.setattr(w.lab.engine, "now", None)
            await w.settle()
        assert not failures
        # And later ones are served as ever.
        listener, _ = w.watch()
        await w.settle()
        assert listener.heard() == [("record", [1]), ("caught-up", 1)]

    play(scenario)


def test_a_failing_read_does_not_stop_the_others(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("bad", 1)
        w.lab.write("good", 1)
        bad = w.lab.topic("bad")
        read = w.lab.engine.read

        def sometimes(topic: Topic, *args: Any, **kwargs: Any) -> Any:
            if topic is bad:
                raise OSError("the disk is on fire")
            return read(topic, *args, **kwargs)

        monkeypatch.setattr(w.lab.engine, "read", sometimes)
        w.watch("bad")
        listener, _ = w.watch("good")
        await w.settle()
        assert listener.heard() == [("record", [1]), ("caught-up", 1)]
        assert "the disk is on fire" in caplog.text

    play(scenario)


def test_how_much_of_a_turn_a_priority_gets() -> None:
    shares = [fanout_module._share(priority) for priority in (-1, 249, 250, 499, 500, 749, 750, 1000)]
    assert shares == [0.125, 0.125, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(("turn", "a_turn"), [(8, 4), (9, 5), (10, 5)])
def test_a_turn_ends_when_its_work_is_done(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, turn: int, a_turn: int
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "TURN_WORK", turn)
        w.lab.put("t", priority=10)
        listeners = [w.watch()[0] for _ in range(25)]
        await w.settle()
        for listener in listeners:
            listener.heard()
        w.lab.write("t", 1)
        served = []
        for _ in range(4):
            await asyncio.sleep(0)
            served.append(sum(bool(listener.told) for listener in listeners))
        # Each visit serves one, which is an eighth of the turn, and counts as one itself.
        assert served == [a_turn, 2 * a_turn, 3 * a_turn, 4 * a_turn]

    play(scenario)


def test_under_pressure_turns_come_later(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "MERGE_S", 3600.0)
        w.lab.put("t")
        listener, _ = w.watch()
        await w.settle()
        listener.heard()
        for lag_ms, told in ((LAG_MS[Level.MERGE] - 1, True), (LAG_MS[Level.MERGE], False)):
            w.load_shedder.lag_ms = lag_ms
            w.lab.write("t", 1)
            await w.settle()
            assert bool(listener.heard()) is told

    play(scenario)


def test_a_sync_is_asked_for_only_where_there_is_something_to_wait_for(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("other", 0)
        w.lab.write("t", 1)
        w.lab.engine.queue.sync_journal()
        head = fanout_module.SyncedHead(w.lab.engine, w.lab.topic("t"))
        woken: list[int] = []

        def wake() -> None:
            woken.append(head.seq(wake))

        assert head.seq(wake) == 1
        # Others have written since, to another topic.
        w.lab.write("other", 1)
        assert head.seq(wake) == 1
        assert w.lab.engine.queue.depth == 0
        w.lab.write("t", 2)
        assert head.seq(wake) == head.seq(wake) == 1
        assert w.lab.engine.queue.depth == 1
        w.lab.engine.queue.sync_now()
        assert woken == [2]

    play(scenario)
