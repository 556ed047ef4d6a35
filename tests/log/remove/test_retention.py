"""A cap in bytes takes as many of the oldest as it must, however it looks for them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.log.harness import T0, Lab, gap, records, seqs
from topics.core.config import TopicConfig
from topics.log.remove.removal import keep_lines, would_remove

SIZES = [3, 2, 5, 3, 2, 9, 2, 3, 4, 2, 7, 3]


@pytest.mark.parametrize("run_records", [4, 100])
@pytest.mark.parametrize("step", [1, 2, 7, 13, 20])
@pytest.mark.parametrize("deleted", [0, 4])
def test_a_byte_cap_takes_no_more_than_it_must(
    make_lab: Callable[..., Lab], run_records: int, step: int, deleted: int
) -> None:
    lab = make_lab(segment_max_events=run_records)
    for size in SIZES:
        lab.write("t", {"data": "x" * (size - 2), "tag": f"size-{size}"})
    lab.delete("t", match=f"size-{deleted}")
    left = [(seq, size) for seq, size in enumerate(SIZES, 1) if size != deleted]
    for cap in range(sum(size for _, size in left), 0, -step):
        lab.put("t", cap_bytes=cap)
        while sum(size for _, size in left) > cap:
            del left[0]
        assert lab.seqs("t", lab.topic("t").floor - 1) == [seq for seq, _ in left], cap
        assert lab.topic("t").live_bytes == sum(size for _, size in left)


def test_dead_slots_are_not_evictions(lab: Lab) -> None:
    lab.put("t", cap_records=3)
    lab.write_each("t", 3, tag="old")
    lab.delete("t", before=2, match="old")
    lab.write_each("t", 1)
    page = lab.diff("t")
    assert seqs(page) == [2, 3, 4]
    assert page.tombstone is None


def test_exactly_the_ttl_is_still_alive(lab: Lab) -> None:
    lab.put("t", ttl_ms=250)
    lab.write_each("t", 1)
    lab.clock.advance(250)
    assert seqs(lab.diff("t")) == [1]
    lab.clock.advance(1)
    assert seqs(lab.diff("t")) == []


@pytest.mark.parametrize("sealed", [False, True])
def test_each_record_lives_for_exactly_the_ttl(lab: Lab, sealed: bool) -> None:
    """At the end of a run, in its middle, and with others of the same millisecond."""
    pauses = (0, 10, 0, 10, 10, 10, 0, 10)
    born = [lab.clock.now_ms() + sum(pauses[: number + 1]) for number in range(len(pauses))]
    moments = sorted({time + 1000 + late for time in born for late in (0, 1)})
    # One for each moment: nothing has aged there before.
    for moment in moments:
        lab.put(f"t{moment}", ttl_ms=1000)
    for pause in pauses:
        lab.clock.advance(pause)
        for moment in moments:
            lab.write(f"t{moment}", 1)
    if sealed:
        lab.checkpoint(everything=True)
    for moment in moments:
        lab.clock.advance(moment - lab.clock.now_ms())
        alive = [seq for seq, time in enumerate(born, 1) if moment - time <= 1000]
        assert seqs(lab.diff(f"t{moment}")) == alive


def test_age_that_takes_nothing_writes_nothing(lab: Lab) -> None:
    """The time is marked on disk when records go by age, which costs a sync, and at no other time."""
    lab.put("t", ttl_ms=1000)
    lab.write("t", 1)
    position = lab.engine.journal.position
    lab.clock.advance(1000)
    assert lab.seqs("t") == [1]
    assert lab.engine.journal.position == position
    lab.clock.advance(1)
    assert lab.seqs("t") == []
    assert lab.engine.journal.position > position


def test_a_line_that_was_shown_takes_what_lies_on_it(lab: Lab) -> None:
    lab.write_each("t", 6)
    keep_lines(lab.topic("t"), 1, 0, T0)
    assert (lab.seqs("t"), lab.gaps("t")) == ([2, 3, 4, 5, 6], [(1, 1, "cap")])
    keep_lines(lab.topic("t"), 1, 2, T0)
    assert (lab.seqs("t"), lab.gaps("t", 1)) == ([3, 4, 5, 6], [(2, 2, "ttl")])


@pytest.mark.parametrize(
    "config",
    [
        {"cap_records": 5},
        {"cap_records": 9},
        {"cap_bytes": 7},
        {"ttl_ms": 45},
        {"cap_records": 8, "ttl_ms": 45},
        {"cap_records": 2, "ttl_ms": 45},
        {"cap_bytes": 8, "ttl_ms": 45},
        {"cap_bytes": 3, "ttl_ms": 45},
        {"cap_bytes": 4, "cap_records": 3},
    ],
    ids=str,
)
def test_what_a_config_would_take_is_what_it_takes(lab: Lab, config: dict[str, int]) -> None:
    for number in range(9):
        lab.clock.advance(10)
        lab.write("t", {"data": number, "tag": f"k{number}"})
    lab.delete("t", match="k4")
    foretold = would_remove(lab.topic("t"), TopicConfig(**config), lab.engine.now())
    before = lab.topic("t").live_count
    lab.put("t", **config)
    assert before - lab.topic("t").live_count == foretold


def test_an_idle_topic_shows_its_age(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 4)
    lab.clock.advance(101)
    assert lab.lines("t") == (4, 5, 5)
    assert (lab.topic("t").live_count, lab.topic("t").live_bytes) == (0, 0)
    assert lab.engine.totals.bytes == 0


@pytest.mark.parametrize("look", [True, False])
def test_a_longer_ttl_brings_nothing_back(lab: Lab, look: bool) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    if look:
        assert lab.seqs("t") == []
    lab.put("t")
    for _ in range(2):
        assert lab.seqs("t") == []
        assert gap(lab.diff("t")) == (1, 3, "ttl")
        lab.restart()


def test_a_clock_set_back_brings_nothing_back(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl")
    lab.clock.set(T0)
    lab.delete("t", before=4)
    lab.put("t")
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


def test_evictions_that_ephemeral_records_caused_stay_evicted(lab: Lab) -> None:
    lab.put("t", cap_records=4)
    lab.write_each("t", 3)
    lab.put("t", cap_records=4, durability="ephemeral")
    lab.write_each("t", 3)
    assert lab.seqs("t") == [3, 4, 5, 6]
    lab.restart()
    assert lab.seqs("t") == [3]
    assert lab.gaps("t") == [(1, 2, "cap"), (4, 6, "cap")]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_caps_evict_the_oldest_live_records_however_many_are_deleted(
    make_lab: Callable[..., Lab], seed: int, sealed: bool
) -> None:
    rng = random.Random(seed)
    lab = make_lab(segment_max_events=rng.choice([3, 4, 100]))
    for seq in range(1, 21):
        lab.write("t", "x" * rng.randrange(5))
        if seq == 12 and sealed:
            lab.checkpoint(everything=True)
    lab.delete("t", before=rng.randrange(1, 6))
    lab.delete("t", seqs=rng.sample(range(5, 21), rng.choice([0, 7])))
    alive = [(record["$seq"], len(record["data"]) + 2) for record in records(lab.diff("t"))]
    caps = {"cap_records": len(alive), "cap_bytes": sum(size for _, size in alive)}
    name, steps = rng.choice([("cap_records", (1, 2)), ("cap_bytes", (1, 2, 3, 5))])
    while caps[name] > 1:
        caps[name] = max(caps[name] - rng.choice(steps), 1)
        lab.put("t", **{name: caps[name]})
        while len(alive) > caps["cap_records"] or sum(size for _, size in alive) > caps["cap_bytes"]:
            del alive[0]
        assert lab.seqs("t", lab.topic("t").floor - 1) == [seq for seq, _ in alive], caps


def test_age_that_ends_inside_an_emptied_run_passes_it(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    for _ in range(12):
        lab.write("t", 0)
        lab.clock.advance(100)
    lab.delete("t", seqs=[5, 6, 7, 8])
    lab.clock.set(T0 + 1650)
    assert lab.seqs("t", lab.topic("t").floor - 1) == [9, 10, 11, 12]
    assert lab.topic("t").ttl_hi == 4


def test_a_config_takes_nothing_from_an_empty_topic(lab: Lab) -> None:
    lab.put("t")
    config = TopicConfig(ttl_ms=1, cap_records=1, cap_bytes=1)
    assert would_remove(lab.topic("t"), config, T0) == 0
    lab.write_each("t", 3)
    lab.delete("t", before=9)
    assert would_remove(lab.topic("t"), config, T0 + 1000) == 0
