"""What a subscription is told: gaps, records, being caught up, endings."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.flow.watched import Scenario, Told, Watched
from topics.flow.watch.delivery import WatchOptions


def test_passing_only_filtered_records_is_silent_and_moves_the_cursor(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(w: Watched) -> None:
        own = WatchOptions(limit=2, max_bytes=1 << 20, nodes=frozenset({"me"}))
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
        assert listener.deliveries[-1].seq == 4

    play(scenario)


def test_only_the_first_gap_of_a_stream_is_renamed(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", cap_records=2)
        w.lab.write_each("t", 4)
        renamed, _ = w.watch()
        plain, _ = w.watch(options=WatchOptions(limit=1000, max_bytes=1 << 20))
        await w.settle()
        assert renamed.heard()[0] == ("tombstone", (1, 2, "from_seq_too_old"))
        assert plain.heard()[0] == ("tombstone", (1, 2, "cap"))
        w.lab.write("t", *range(5))
        await w.settle()
        expected = [("tombstone", (5, 7, "cap")), ("record", [8, 9]), ("caught-up", 9)]
        assert renamed.heard() == expected
        assert plain.heard() == expected

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
        assert len(w.fanout.topics) == 1

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
        assert subscription.fanout is None
        assert not w.fanout.topics
        assert not topic.listeners

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
                options = WatchOptions(limit=3, max_bytes=1 << 20, nodes=nodes)
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
