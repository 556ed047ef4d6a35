"""The account of missing seqs says for each one why it is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.log.harness import Lab
from tests.support.damage import flip
from topics.log.read.audit import (
    Steps,
    at_once,
    bucket_steps,
    exact,
    missing_ranges,
    range_steps,
    why_missing,
)
from topics.log.remove import ledger
from topics.log.remove.removal import lose_runs


def told(lab: Lab, name: str = "a") -> list[tuple[int, int, str]]:
    lab.engine.refresh(lab.topic(name))
    return [(first, last, ledger.KIND_NAMES[kind]) for first, last, kind in missing_ranges(lab.topic(name))]


@pytest.mark.parametrize("seed", range(10))
def test_every_seq_is_readable_or_accounted_for(make_lab: Callable[..., Lab], seed: int) -> None:
    rng = random.Random(seed)
    lab = make_lab(segment_max_events=3)
    lab.put("a", cap_records=rng.choice([0, 9]), ttl_ms=rng.choice([0, 300]))
    for _ in range(60):
        roll = rng.random()
        if roll < 0.5:
            lab.write("a", *({"data": 0, "tag": rng.choice("xyz")} for _ in range(rng.randrange(1, 4))))
        elif roll < 0.65:
            lab.delete("a", match=rng.choice("xyz"))
        elif roll < 0.75:
            lab.delete("a", before=lab.topic("a").floor + rng.randrange(3))
        elif roll < 0.85:
            lab.clock.advance(rng.choice([50, 200]))
        elif roll < 0.95:
            lab.checkpoint(everything=rng.random() < 0.5)
        else:
            lab.restart()
        ranges = told(lab)
        missing = [seq for first, last, _ in ranges for seq in range(first, last + 1)]
        readable = lab.seqs("a")
        assert sorted([*missing, *readable]) == list(range(1, lab.topic("a").head + 1))
        assert all(a[1] + 1 < b[0] or a[2] != b[2] for a, b in pairwise(ranges))


# --- in pages and in buckets --------------------------------------------------------------------------------


def brute_buckets(lab: Lab, name: str, count: int) -> list[tuple[int, ...]]:
    """By looking at every seq."""
    topic = lab.topic(name)
    why = {seq: kind for first, last, kind in missing_ranges(topic) for seq in range(first, last + 1)}
    total = topic.head - topic.seq_base + 1
    count = min(count, total)
    bounds = [topic.seq_base + total * number // count for number in range(count + 1)] if count else []
    found = []
    for first, stop in pairwise(bounds):
        kinds = [why.get(seq) for seq in range(first, stop)]
        found.append((first, stop - 1, kinds.count(None), *(kinds.count(kind) for kind in range(5))))
    return found


def buckets(lab: Lab, name: str, count: int) -> list[tuple[int, ...]]:
    found = at_once(bucket_steps(lab.topic(name), count))
    return [(one.first, one.last, one.live, *one.missing) for one in found]


def in_pages(lab: Lab, name: str, size: int) -> list[tuple[int, int, int]]:
    topic, found = lab.topic(name), []
    after = topic.seq_base - 1
    while page := at_once(range_steps(topic, after, size)):
        assert len(page) <= size
        found += page
        after = page[-1][1]
    return found


def with_holes(lab: Lab, rng: random.Random) -> None:
    """A hole inside, and perhaps one at the front."""
    for at in rng.sample(range(1, lab.topic("a").head), 2):
        topic = lab.topic("a")
        run = next((r for r in topic.runs if r.base <= at <= r.last and r.live_count), None)
        if run is not None:
            lose_runs(topic, [run])


@pytest.mark.parametrize("seed", range(12))
def test_pages_and_buckets_say_the_same_as_the_whole(make_lab: Callable[..., Lab], seed: int) -> None:
    rng = random.Random(seed)
    lab = make_lab(segment_max_events=rng.choice([3, 50]), seq_base=rng.choice([1, 1000]))
    lab.put("a", cap_records=rng.choice([0, 70]), ttl_ms=rng.choice([0, 300]))
    for _ in range(25):
        lab.write("a", *({"data": 0, "tag": rng.choice("xyz")} for _ in range(rng.randrange(1, 12))))
        if rng.random() < 0.3:
            lab.delete("a", match=rng.choice("xyz"))
        if rng.random() < 0.2:
            lab.delete("a", before=lab.topic("a").floor + rng.randrange(5))
        if rng.random() < 0.3:
            lab.clock.advance(60)
        if rng.random() < 0.3:
            lab.checkpoint(everything=rng.random() < 0.5)
    with_holes(lab, rng)
    whole = missing_ranges(lab.topic("a"))
    assert whole
    for size in (1, 2, 3, 7, 1000):
        assert in_pages(lab, "a", size) == whole
    for after in rng.sample(range(1, lab.topic("a").head), 5):
        expected = [(max(first, after + 1), last, kind) for first, last, kind in whole if last > after]
        assert at_once(range_steps(lab.topic("a"), after, 1000)) == expected
    for count in (1, 2, 3, 10, 64, 2000):
        assert buckets(lab, "a", count) == brute_buckets(lab, "a", count)


@pytest.mark.parametrize("seed", range(40))
def test_holes_lie_in_the_account_as_they_come(lab: Lab, seed: int) -> None:
    """Of one seq or more, side by side or apart, beginning and ending anywhere in what the ledger says."""
    rng = random.Random(seed)
    lab.put("a")
    topic = lab.topic("a")
    topic.skip_to(40)
    topic.head, topic.floor = 40, 31
    why: dict[int, int] = {}
    for mark, is_hole in ((31, False), (41, True)):
        at = 1
        while at < mark:
            last = min(at + rng.choice([0, 0, 1, 5]), mark - 1)
            kind = rng.choice([ledger.TRIM, ledger.LOST] if is_hole else [ledger.DELETED, ledger.CAP])
            if rng.random() < 0.5:
                if is_hole:
                    topic.note_hole(at, last, kind, interior=True)
                else:
                    topic.ledger.add(at, last, kind)
                why |= dict.fromkeys(range(at, last + 1), kind)
            at = last + 1
    ranges = missing_ranges(topic)
    assert {seq: kind for first, last, kind in ranges for seq in range(first, last + 1)} == why
    assert sum(last - first + 1 for first, last, _ in ranges) == len(why)
    assert {seq: why_missing(topic, seq) for seq in why} == why
    assert why_missing(topic, 41) == ledger.DELETED
    for after in range(41):
        expected = [(max(first, after + 1), last, kind) for first, last, kind in ranges if last > after]
        assert at_once(range_steps(topic, after, 100)) == expected
    for count in (1, 2, 3, 7, 40):
        assert buckets(lab, "a", count) == brute_buckets(lab, "a", count)


def alternating(lab: Lab, count: int) -> None:
    """As many ranges as can be had from so many records."""
    lab.write("a", *({"data": 0, "tag": "xy"[seq % 2]} for seq in range(count)))
    lab.delete("a", match="x")


def test_a_page_looks_at_no_more_than_it_shows(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(segment_max_events=100)
    for _ in range(50):
        alternating(lab, 100)
    lab.checkpoint(everything=True)
    lab.checkpoint(everything=True)
    lab.restart()
    topic = lab.topic("a")
    misses = topic.store.cache_misses
    assert len(at_once(range_steps(topic, 0, 20))) == 20
    assert topic.store.cache_misses - misses <= 2
    misses = topic.store.cache_misses
    assert len(at_once(range_steps(topic, 3000, 20))) == 20
    assert topic.store.cache_misses - misses <= 2
    # Stretches that lie between runs need none of their marks.
    misses = topic.store.cache_misses
    assert [one.live for one in at_once(bucket_steps(topic, 50))] == [50] * 50
    assert topic.store.cache_misses == misses


def test_others_have_their_turn_between_two_files(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(segment_max_events=10)
    for _ in range(20):
        alternating(lab, 10)
    lab.checkpoint(everything=True)
    lab.restart()
    topic = lab.topic("a")
    assert sum(1 for _ in range_steps(topic, 0, 1000)) >= 19
    lab.engine.store.close()
    assert sum(1 for _ in bucket_steps(topic, 7)) >= 6


@pytest.mark.parametrize("often", [1, 2, 100])
@pytest.mark.parametrize("what", ["buckets", "ranges"])
def test_what_leaves_meanwhile_is_not_taken_for_live(
    make_lab: Callable[..., Lab], what: str, often: int
) -> None:
    lab = make_lab(segment_max_events=10)
    for _ in range(20):
        alternating(lab, 10)
    lab.checkpoint(everything=True)
    lab.restart()
    topic = lab.topic("a")

    def meanwhile(steps: Steps[Any]) -> Steps[Any]:
        for turn in range(often):
            try:
                yield next(steps)
            except StopIteration as end:
                return end.value
            lab.delete("a", before=20 + 20 * turn)
        return (yield from steps)

    if what == "ranges":
        ranges = at_once(meanwhile(exact(topic, lambda: range_steps(topic, 0, 1000))))
        assert ranges == missing_ranges(topic)
    else:
        found = at_once(meanwhile(exact(topic, lambda: bucket_steps(topic, 3))))
        assert [(b.first, b.last, b.live, *b.missing) for b in found] == brute_buckets(lab, "a", 3)
    assert topic.floor >= 20


def test_damage_that_is_met_on_the_way_is_announced(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(segment_max_events=10)
    for _ in range(4):
        alternating(lab, 10)
    lab.checkpoint(everything=True)
    lab.restart()
    lab.engine.store.close()
    flip(lab.segment_files()[1], 40)
    topic = lab.topic("a")
    found = at_once(exact(topic, lambda: bucket_steps(topic, 3)))
    assert [(b.first, b.last, b.live, *b.missing) for b in found] == brute_buckets(lab, "a", 3)
    assert sum(b.missing[ledger.LOST] for b in found) == 10
