"""Who among the watchers is served when, and what watchers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.watched import Scenario, Watched
from tests.support.appending import append
from topics.flow.watch import delivery
from topics.flow.watch import fanout as fanout_module
from topics.flow.watch.delivery import WatchOptions
from topics.log import Engine, read_page
from topics.log.topic import Topic


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: how much is served in a turn is a matter of work here."""
    monkeypatch.setattr(fanout_module, "TURN_S", 60.0)


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


def test_a_failing_read_does_not_stop_the_others(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("bad", 1)
        w.lab.write("good", 1)
        bad = w.lab.topic("bad")

        def sometimes(engine: Engine, topic: Topic, *args: Any, **kwargs: Any) -> Any:
            if topic is bad:
                raise OSError("the disk is on fire")
            return read_page(engine, topic, *args, **kwargs)

        monkeypatch.setattr(delivery, "read_page", sometimes)
        w.watch("bad")
        listener, _ = w.watch("good")
        await w.settle()
        assert listener.heard() == [("record", [1]), ("caught-up", 1)]
        assert "the disk is on fire" in caplog.text

    play(scenario)


def test_everybody_at_the_same_place_shares_one_step(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        listeners = [w.watch(options=WatchOptions(limit=5, max_bytes=1 << 20))[0] for _ in range(50)]
        await w.settle()
        reads = []
        monkeypatch.setattr(delivery, "read_page", lambda *a, **k: reads.append(a) or read_page(*a, **k))
        w.lab.write("t", 1)
        await w.settle()
        assert len(reads) == 1
        assert len({id(listener.deliveries[-1]) for listener in listeners}) == 1
        assert all(listener.heard()[-1] == ("caught-up", 1) for listener in listeners)

    play(scenario)


def test_a_stalled_watcher_of_a_trimmed_topic_is_told_its_loss(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_records=2)
        slow, subscription = w.watch()
        await w.settle()
        slow.heard()
        slow.stalled = True
        w.lab.write_each("t", 6)
        await w.settle()
        slow.stalled = False
        w.fanout.resume([subscription])
        await w.settle()
        assert slow.heard() == [("tombstone", (1, 4, "cap")), ("record", [5, 6]), ("caught-up", 6)]

    play(scenario)


def test_a_round_pulls_first_and_counts_as_a_read(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        topic = w.lab.topic("t")
        w.watch()
        await w.settle()
        w.pulled.clear()
        w.lab.clock.advance(1234)
        w.lab.write("t", 1)
        await w.settle()
        assert w.pulled == [topic]
        assert topic.last_read_ts == w.lab.clock.now_ms()

    play(scenario)


def test_strong_watchers_wait_for_the_disk(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        engine = w.lab.engine
        w.lab.put("t")
        strong, _ = w.watch(options=WatchOptions(limit=10, max_bytes=1 << 20, strong=True))
        eventual, _ = w.watch()
        await w.settle()
        strong.heard(), eventual.heard()
        w.lab.write("t", 1, 2)
        assert engine.journal.synced < engine.journal.position
        await w.settle()
        assert eventual.heard() == [("record", [1, 2]), ("caught-up", 2)]
        assert strong.heard() == []
        # It asked for a sync. More arrives meanwhile, and is not covered by that one.
        engine.queue.flush()
        ticket = engine.queue.effects.begin_sync()
        append(w.lab.engine, "t", b'{"records":[{"data":3}]}', lambda op: None, _unexpected)
        engine.queue.flush()
        ticket.run()
        engine.queue.effects.finish_sync(ticket)
        await w.settle()
        assert strong.heard() == [("record", [1, 2])]
        assert eventual.heard() == [("record", [3]), ("caught-up", 3)]
        engine.queue.sync_now()
        await w.settle()
        assert strong.heard() == [("record", [3]), ("caught-up", 3)]

    play(scenario)


def _unexpected(error: Exception) -> None:
    raise error
