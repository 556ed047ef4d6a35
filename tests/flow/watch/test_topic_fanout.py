"""Rounds of a feed: what is shared, what waits, and what is left for later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.flow.watched import Scenario, Watched
from tests.support.appending import append
from topics.flow.watch import fanout as fanout_module
from topics.flow.watch.delivery import WatchOptions


def test_everybody_at_the_same_place_shares_one_step(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        listeners = [w.watch(options=WatchOptions(limit=5, max_bytes=1 << 20))[0] for _ in range(50)]
        await w.settle()
        reads = []
        read = w.lab.engine.read
        monkeypatch.setattr(w.lab.engine, "read", lambda *a, **k: reads.append(a) or read(*a, **k))
        w.lab.write("t", 1)
        await w.settle()
        assert len(reads) == 1
        assert len({id(listener.deliveries[-1]) for listener in listeners}) == 1
        assert all(listener.heard()[-1] == ("caught-up", 1) for listener in listeners)

    play(scenario)


def test_a_stalled_watcher_is_passed_over_and_catches_up_in_fewer_frames(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        slow, subscription = w.watch()
        quick, _ = w.watch()
        await w.settle()
        slow.stalled = True
        for number in range(3):
            w.lab.write("t", number)
            await w.settle()
        assert quick.heard()[1:] == [
            ("record", [1]),
            ("caught-up", 1),
            ("record", [2]),
            ("caught-up", 2),
            ("record", [3]),
            ("caught-up", 3),
        ]
        assert slow.heard() == [("caught-up", 0)]
        slow.stalled = False
        w.fanout.resume([subscription])
        await w.settle()
        assert slow.heard() == [("record", [1, 2, 3]), ("caught-up", 3)]

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


def test_a_topic_dropped_while_its_watcher_was_stalled(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1)
        slow, subscription = w.watch()
        await w.settle()
        slow.heard()
        slow.stalled = True
        w.lab.drop("t")
        await w.settle()
        slow.stalled = False
        w.fanout.resume([subscription])
        await w.settle()
        assert slow.heard() == [("topic-deleted", 1)]
        assert not w.fanout.topics

    play(scenario)


def test_records_that_arrive_during_a_round_are_sent_together(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        monkeypatch.setattr(fanout_module, "TURN_WORK", 1)
        w.lab.put("t")
        first, _ = w.watch()
        second, _ = w.watch()
        await w.settle()
        first.heard(), second.heard()
        w.lab.write("t", 1)
        await asyncio.sleep(0)
        w.lab.write("t", 2)
        await w.settle()
        assert first.heard() == [("record", [1]), ("caught-up", 1), ("record", [2]), ("caught-up", 2)]
        assert second.heard() == [("record", [1, 2]), ("caught-up", 2)]

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
