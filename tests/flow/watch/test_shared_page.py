"""Watchers that leave out their own records get the same as if each had a page read for it alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flow.watched import OPTIONS, Scenario, Watched
from tests.log.harness import Lab
from topics.flow.watch.delivery import Delivery, DeliveryKey, DeliveryPage, WatchOptions
from topics.log import Choice, Shape
from topics.log.read.filter import parse_match
from topics.log.topic import Topic

# Some of them have to be escaped in a row; the last looks like the end of one.
NAMES = ("a", "b", "ab", "", 'q"\\', "é\n", '","data":{"$node":"a"}}')


def leaving_out(*nodes: str, **options: Any) -> WatchOptions:
    return msgspec.structs.replace(OPTIONS, nodes=frozenset(nodes), **options)


def content(delivery: Delivery) -> tuple[Any, ...]:
    return (
        [(event.kind, event.seq, event.body) for event in delivery.events],
        (delivery.seq, delivery.epoch, delivery.caught_up, delivery.more, delivery.first_life),
        (delivery.count, delivery.gap, delivery.missed, delivery.size),
    )


def checked(lab: Lab, topic: Topic, place: DeliveryKey, upto: int | None) -> bool:
    """Whether the page for all can be used; if so, it says the same as one that is read for this reader."""
    for_all = place._replace(options=msgspec.structs.replace(place.options, nodes=None))
    common = DeliveryPage(lab.engine, topic, for_all, upto)
    if not common.is_whole:
        return False
    assert place.options.nodes is not None
    alone = DeliveryPage(lab.engine, topic, place, upto).delivery
    for _ in range(2):
        assert content(common.without(place.options.nodes)) == content(alone)
    return True


def written(dice: random.Random) -> dict[str, Any]:
    record: dict[str, Any] = {"data": {"$node": "a", "text": "x" * dice.randrange(40)}}
    if dice.random() < 0.8:
        record["node"] = dice.choice(NAMES)
    if dice.random() < 0.5:
        record["tag"] = dice.choice(("red", "blue"))
    if dice.random() < 0.2:
        record["meta"] = {"$node": "b"}
    return record


@pytest.mark.parametrize("seed", range(6))
def test_the_page_for_all_without_some_is_the_page_for_one(seed: int, tmp_path: Path) -> None:
    """Over records in memory and in files, deleted and evicted ones, holes and lives."""
    dice = random.Random(seed)
    lab = Lab(tmp_path / "data")
    config = dice.choice(({}, {"cap_records": 9}))
    lab.put("t", **config)
    used = 0
    for _ in range(6):
        lab.write("t", *(written(dice) for _ in range(dice.randrange(1, 6))))
        topic = lab.topic("t")
        if dice.random() < 0.3:
            lab.delete("t", seqs=[dice.randrange(1, topic.head + 1)])
        if dice.random() < 0.3:
            lab.checkpoint(everything=True)
        for _ in range(40):
            options = WatchOptions(
                limit=dice.choice((1, 2, 5, 1000)),
                max_bytes=dice.choice((1, 60, 300, 1 << 20)),
                nodes=frozenset(dice.sample(NAMES, dice.randrange(1, 4))),
                shape=Shape(tags=dice.random() < 0.3, meta=dice.random() < 0.7, data=dice.random() < 0.9),
                choice=Choice(parse_match("red")) if dice.random() < 0.2 else None,
                names_first_gap=dice.random() < 0.5,
            )
            place = DeliveryKey(
                dice.randrange(topic.head + 2),
                topic.id if dice.random() < 0.9 else topic.id + 7,
                dice.random() < 0.5,
                dice.random() < 0.5,
                options,
            )
            upto = None if dice.random() < 0.7 else dice.randrange(topic.head + 1)
            used += checked(lab, topic, place, upto)
    # The rest was cut short, and is read for each alone.
    assert used > 60
    lab.kill()


def test_a_topic_that_does_not_filter_tells_everybody_everything(play: Callable[[Scenario], None]) -> None:
    async def scenario(w: Watched) -> None:
        w.lab.put("t", dedupe_node=False)
        writer, _ = w.watch(options=leaving_out("me"))
        await w.settle()
        writer.heard()
        w.lab.write("t", {"data": 1, "node": "me"})
        await w.settle()
        assert writer.heard() == [("record", [1]), ("caught-up", 1)]

    play(scenario)


def test_a_page_that_was_cut_short_is_as_long_for_one_that_leaves_some_out(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(w: Watched) -> None:
        data = "x" * 100
        w.lab.write("t", *({"data": data, "node": "me" if n % 2 else "you"} for n in range(8)))
        watcher, _ = w.watch(options=leaving_out("me", max_bytes=310))
        await w.settle()
        assert watcher.heard() == [("record", [1, 3, 5]), ("record", [7]), ("caught-up", 8)]
        bodies = [json.loads(b"{%b}" % each.events[0].body) for each in watcher.deliveries]
        assert [(body["from_seq"], body["to_seq"]) for body in bodies] == [(0, 6), (6, 8)]

    play(scenario)
