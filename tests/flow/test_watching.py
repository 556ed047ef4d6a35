"""What a subscription is told: gaps, records, being level, endings; and who is served when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import Lab
from topics.flow import fanout as fanout_module
from topics.flow.fanout import Fanout
from topics.flow.governor import Governor
from topics.flow.watching import Options, Step, Subscription
from topics.log.batch import parse_append
from topics.log.engine import Engine
from topics.log.rendering import Shape
from topics.log.topic import Topic

OPTIONS = Options(limit=1000, max_bytes=1 << 20, names_first_gap=True)
Told = list[tuple[str, Any]]


class Listener:
    """A watcher that writes down what it is told."""

    def __init__(self) -> None:
        self.stalled = False
        self.steps: list[Step] = []
        self.told: Told = []
        self.cursors: list[int] = []
        self.over: list[str] = []

    def deliver(self, subscription: Subscription, step: Step) -> None:
        self.steps.append(step)
        for event in step.events:
            body = json.loads(b"{%b}" % event.body)
            self.told.append((event.kind, _gist(event.kind, body)))
            self.cursors.append(event.seq)

    def ended(self, subscription: Subscription) -> None:
        self.over.append(subscription.name)

    def heard(self) -> Told:
        """What was told since the last time somebody asked."""
        told, self.told = self.told, []
        return told


def _gist(kind: str, body: dict[str, Any]) -> Any:
    if kind == "record":
        assert set(body) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
        return [record["$seq"] for record in body["records"]]
    if kind == "tombstone":
        assert set(body) == {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}
        return body["gap_from"], body["gap_to"], body["reason"]
    assert set(body) == {"topic", "head_seq"} | ({"reason"} if kind == "topic-deleted" else set())
    return body["head_seq"]


class Watched:
    """A lab whose topics are watched; `settle` lets the loop do everything that is due."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pulled: list[Topic] = []
        self.governor = Governor()
        self.fanout = Fanout(lab.engine, self.pulled.append, self.governor)

    def watch(
        self, name: str = "t", seq: int = 0, options: Options = OPTIONS, epoch: int | None = None
    ) -> tuple[Listener, Subscription]:
        listener = Listener()
        if epoch is None:
            epoch = self.lab.topic(name).id
        subscription = Subscription(listener, name, options, seq=seq, epoch=epoch)
        self.fanout.attach(subscription)
        return listener, subscription

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


Scenario = Callable[[Watched], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            lab = Lab(tmp_path / "data")
            await scenario(Watched(lab))
            lab.kill()

        asyncio.run(main())

    return run


def test_an_empty_topic_is_level_at_once(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        listener, _ = w.watch()
        await w.settle()
        assert listener.heard() == [("caught-up", 0)]
        w.lab.write("t", 1, 2)
        await w.settle()
        assert listener.heard() == [("record", [1, 2]), ("caught-up", 2)]

    play(scenario)


def test_a_tailing_watcher_gets_only_what_comes_later(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1, 2, 3)
        listener, _ = w.watch(seq=3)
        await w.settle()
        w.lab.write("t", 4)
        await w.settle()
        assert listener.heard() == [("caught-up", 3), ("record", [4]), ("caught-up", 4)]

    play(scenario)


def test_frames_hold_what_the_limit_allows_and_level_is_told_once(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", *range(5))
        listener, subscription = w.watch(options=Options(limit=2, max_bytes=1 << 20))
        await w.settle()
        assert listener.heard() == [("record", [1, 2]), ("record", [3, 4]), ("record", [5]), ("caught-up", 5)]
        assert listener.cursors == [2, 4, 5, 5]
        assert subscription.seq == 5

    play(scenario)


def test_passing_only_filtered_records_is_silent_and_moves_the_cursor(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(w: Watched) -> None:
        own = Options(limit=2, max_bytes=1 << 20, nodes=frozenset({"me"}))
        w.lab.write("t", 1, 2)
        w.lab.write("t", {"data": 3, "node": "me"})
        listener, subscription = w.watch(options=own)
        await w.settle()
        # Behind after the first page, so being level is news after the second.
        assert listener.heard() == [("record", [1, 2]), ("caught-up", 3)]
        w.lab.write("t", {"data": 4, "node": "me"})
        await w.settle()
        assert listener.heard() == []
        assert subscription.seq == 4
        # Its watcher is told all the same: the stored cursor has to move.
        assert listener.steps[-1].seq == 4

    play(scenario)


def test_a_deleted_prefix_is_silent_an_evicted_one_is_not(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", *range(8))
        w.lab.delete("t", before=5)
        listener, _ = w.watch()
        await w.settle()
        assert listener.heard() == [("record", [5, 6, 7, 8]), ("caught-up", 8)]
        w.lab.put("capped", cap_records=4)
        w.lab.write_each("capped", 8)
        listener, _ = w.watch("capped")
        await w.settle()
        assert listener.heard() == [
            ("tombstone", (1, 4, "from_seq_too_old")),
            ("record", [5, 6, 7, 8]),
            ("caught-up", 8),
        ]
        assert listener.cursors == [4, 8, 8]

    play(scenario)


def test_the_record_frame_behind_a_gap_starts_where_the_gap_ended(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_records=2)
        w.lab.write_each("t", 5)
        listener, _ = w.watch()
        await w.settle()
        body = json.loads(b"{%b}" % listener.steps[0].events[1].body)
        assert (body["from_seq"], body["to_seq"], body["head_seq"]) == (3, 5, 5)

    play(scenario)


def test_only_the_first_gap_of_a_stream_is_renamed(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_records=2)
        w.lab.write_each("t", 4)
        renamed, _ = w.watch()
        plain, _ = w.watch(options=Options(limit=1000, max_bytes=1 << 20))
        await w.settle()
        assert renamed.heard()[0] == ("tombstone", (1, 2, "from_seq_too_old"))
        assert plain.heard()[0] == ("tombstone", (1, 2, "cap"))
        w.lab.write("t", *range(5))
        await w.settle()
        expected = [("tombstone", (5, 7, "cap")), ("record", [8, 9]), ("caught-up", 9)]
        assert renamed.heard() == expected
        assert plain.heard() == expected

    play(scenario)


def test_a_gap_up_to_the_head_leaves_the_watcher_level(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", ttl_ms=1000)
        w.lab.write_each("t", 3)
        w.lab.clock.advance(5000)
        listener, _ = w.watch(seq=1)
        await w.settle()
        assert listener.heard() == [("tombstone", (2, 3, "from_seq_too_old")), ("caught-up", 3)]

    play(scenario)


def test_a_record_that_evicts_itself_is_announced(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_bytes=3)
        listener, _ = w.watch()
        await w.settle()
        w.lab.write("t", "far too long")
        await w.settle()
        assert listener.heard() == [("caught-up", 0), ("tombstone", (1, 1, "cap")), ("caught-up", 1)]

    play(scenario)


def test_a_cursor_beyond_the_head_starts_over(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1, 2)
        listener, _ = w.watch(seq=40)
        await w.settle()
        assert listener.heard() == [("tombstone", (1, 0, "recreated")), ("record", [1, 2]), ("caught-up", 2)]
        assert listener.cursors == [0, 2, 2]

    play(scenario)


def test_another_instance_is_told_by_its_epoch_alone(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1, 2)
        old = w.lab.topic("t").id
        w.lab.drop("t")
        w.lab.write("t", 3, 4, 5)
        # The old cursor would be a perfectly good position in the new instance.
        listener, subscription = w.watch(seq=2, epoch=old)
        await w.settle()
        assert listener.heard() == [
            ("tombstone", (1, 0, "recreated")),
            ("record", [1, 2, 3]),
            ("caught-up", 3),
        ]
        assert subscription.epoch == w.lab.topic("t").id

    play(scenario)


def test_a_topic_replaced_before_anybody_noticed_goes_on(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1, 2)
        listener, _ = w.watch()
        await w.settle()
        listener.heard()
        w.lab.drop("t")
        w.lab.write("t", 3)
        await w.settle()
        assert listener.heard() == [("tombstone", (1, 0, "recreated")), ("record", [1]), ("caught-up", 1)]
        w.lab.write("t", 4)
        await w.settle()
        assert listener.heard() == [("record", [2]), ("caught-up", 2)]
        assert len(w.fanout.feeds) == 1

    play(scenario)


def test_a_deleted_topic_ends_its_subscriptions_for_good(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", 1, 2)
        topic = w.lab.topic("t")
        listener, subscription = w.watch()
        await w.settle()
        listener.heard()
        w.lab.drop("t")
        await w.settle()
        assert listener.heard() == [("topic-deleted", 2)]
        assert listener.over == ["t"]
        w.lab.write("t", 3)
        await w.settle()
        assert listener.heard() == []
        assert subscription.feed is None
        assert not w.fanout.feeds
        assert not topic.listeners

    play(scenario)


def test_a_topic_that_is_gone_when_the_stream_opens(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        listener, _ = w.watch(epoch=1)
        assert listener.heard() == [("topic-deleted", 0)]
        assert listener.over == ["t"]

    play(scenario)


def test_watchers_and_diff_agree(play: Callable[[Scenario], None]) -> None:
    """The same position gives the same records, gaps and cursors, whoever asks."""

    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_records=9)
        for number in range(12):
            w.lab.write("t", {"data": number, "node": f"n{number % 3}", "tag": f"g{number % 4}"})
        w.lab.delete("t", match="g1")
        for seq in range(13):
            for nodes in (None, frozenset({"n1"})):
                options = Options(limit=3, max_bytes=1 << 20, nodes=nodes)
                listener, _ = w.watch(seq=seq, options=options)
                await w.settle()
                expected: Told = []
                cursor = seq
                while True:
                    page = w.lab.diff("t", cursor, limit=3, nodes=nodes)
                    if page.tombstone is not None:
                        gap = page.tombstone
                        expected.append(("tombstone", (gap.gap_from, gap.gap_to, gap.reason)))
                    if page.count:
                        rows = [json.loads(row)["$seq"] for row in page.rows.splitlines()]
                        expected.append(("record", rows))
                    cursor = page.next_from_seq
                    if page.caught_up:
                        break
                assert listener.heard() == [*expected, ("caught-up", 12)]

    play(scenario)


def test_shape_of_the_records(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.write("t", {"data": 1, "tag": "a", "meta": {"m": 1}})
        for shape, keys in (
            (Shape(), {"data", "meta"}),
            (Shape(tags=True), {"data", "meta", "$tag"}),
            (Shape(meta=False), {"data"}),
            (Shape(data=False), {"meta"}),
        ):
            listener, _ = w.watch(options=Options(limit=10, max_bytes=1 << 20, shape=shape))
            await w.settle()
            body = json.loads(b"{%b}" % listener.steps[0].events[0].body)
            assert set(body["records"][0]) == {"$seq", "$ts"} | keys

    play(scenario)


# --- who is served when ---------------------------------------------------------------------------------


def test_everybody_at_the_same_place_shares_one_step(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t")
        listeners = [w.watch(options=Options(limit=5, max_bytes=1 << 20))[0] for _ in range(50)]
        await w.settle()
        reads = []
        read = w.lab.engine.read
        monkeypatch.setattr(w.lab.engine, "read", lambda *a, **k: reads.append(a) or read(*a, **k))
        w.lab.write("t", 1)
        await w.settle()
        assert len(reads) == 1
        assert len({id(listener.steps[-1]) for listener in listeners}) == 1
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
        assert not w.fanout.feeds

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
        w.governor.lag_ms = 200.0
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
        w.governor.lag_ms = 0.0
        await asyncio.sleep(0.01)
        assert low.heard() == [("record", [2, 3]), ("caught-up", 3)]

    play(scenario)


def test_records_that_arrive_during_a_round_travel_together(
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
        assert not w.fanout.feeds

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
            patch.delattr(Engine, "now")
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
        strong, _ = w.watch(options=Options(limit=10, max_bytes=1 << 20, strong=True))
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
        ticket = engine.queue.begin_sync()
        w.lab.engine.append("t", parse_append(b'{"records":[{"data":3}]}'), lambda op: None, _unexpected)
        engine.queue.flush()
        ticket.run()
        engine.queue.finish_sync(ticket)
        await w.settle()
        assert strong.heard() == [("record", [1, 2])]
        assert eventual.heard() == [("record", [3]), ("caught-up", 3)]
        engine.queue.sync_now()
        await w.settle()
        assert strong.heard() == [("record", [3]), ("caught-up", 3)]

    play(scenario)


def _unexpected(error: Exception) -> None:
    raise error
