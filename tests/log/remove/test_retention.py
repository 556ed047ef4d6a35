"""A cap in bytes takes as many of the oldest as it must, however it looks for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import T0, Lab, seqs
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


def test_evictions_that_ephemeral_records_caused_stay_evicted(lab: Lab) -> None:
    lab.put("t", cap_records=4)
    lab.write_each("t", 3)
    lab.put("t", cap_records=4, durability="ephemeral")
    lab.write_each("t", 3)
    assert lab.seqs("t") == [3, 4, 5, 6]
    lab.restart()
    assert lab.seqs("t") == [3]
    assert lab.gaps("t") == [(1, 2, "cap"), (4, 6, "cap")]


def test_age_that_ends_inside_an_emptied_run_passes_it(lab: Lab) -> None:
    lab.put("t", ttl_ms=1000)
    for _ in range(12):
        lab.write("t", 0)
        lab.clock.advance(100)
    lab.delete("t", seqs=[5, 6, 7, 8])
    lab.clock.set(T0 + 1650)
    assert lab.seqs("t", lab.topic("t").floor - 1) == [9, 10, 11, 12]
    assert lab.topic("t").ttl_hi == 4
