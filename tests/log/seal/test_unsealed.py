"""Which runs a checkpoint is told of, and what is said about the journal they depend on."""

from __future__ import annotations

from tests.log.harness import Lab
from topics.log.run import HotColumns, Run, Unsealed


def bases(runs: list[Run]) -> list[int]:
    return [run.base for run in runs]


def test_full_runs_and_old_ones_are_taken_and_nothing_else(lab: Lab) -> None:
    lab.write("full", *range(4))
    lab.clock.advance(1000)
    lab.write("young", 1)
    unsealed = lab.engine.store.unsealed
    assert {topic.name for topic in unsealed.runs.values()} == {"full", "young"}
    assert unsealed.has_full
    full = lab.topic("full").runs[0]
    assert unsealed.take(0, 0, 10) == [full]
    assert not unsealed.has_full
    # Full or not, a run that is old enough or holds back the journal has to go.
    now = lab.engine.now()
    young = lab.topic("young").runs[0]
    assert unsealed.take(0, now, 10) == [full]
    assert unsealed.take(0, now + 1, 10) == [full, young]
    assert unsealed.take(young.start_position, 0, 10) == [full]
    assert unsealed.take(young.start_position + 1, 0, 10) == [full, young]
    assert unsealed.take(young.start_position + 1, 0, 1) == [full]


def test_weight_follows_what_is_in_memory(lab: Lab) -> None:
    unsealed = lab.engine.store.unsealed
    lab.write("t", *({"data": n, "tag": f"tag-{n}"} for n in range(6)))
    lab.write("t", *range(3))
    lab.put("e", durability="ephemeral")
    lab.write("e", 1)
    weights = [run.hot.weight for run in lab.topic("t").runs if run.hot is not None]
    assert unsealed.bytes == sum(weights) > 0
    lab.delete("t", match="tag-*")
    lab.checkpoint(everything=True)
    assert (unsealed.bytes, len(unsealed.runs)) == (0, 0)
    lab.write("t", 1)
    lab.drop("t")
    assert (unsealed.bytes, len(unsealed.runs)) == (0, 0)


def test_a_run_that_depends_on_older_journal_is_found_whatever_its_place(lab: Lab) -> None:
    topic = lab.topic("t") if lab.write("t", 1) else None
    assert topic is not None
    unsealed = Unsealed(4, 1 << 20)
    first = Run(topic.id, 1, HotColumns(1), start_position=500)
    second = Run(topic.id, 9, HotColumns(9), start_position=700)
    unsealed.add(topic, first)
    unsealed.add(topic, second)
    assert unsealed.oldest_position(1000) == 500
    unsealed.lower(second, 300)
    assert unsealed.oldest_position(1000) == 300
    assert bases(unsealed.take(300, 0, 10)) == []
    assert bases(unsealed.take(301, 0, 10)) == [9]
    third = Run(topic.id, 20, HotColumns(20), start_position=100)
    unsealed.add(topic, third)
    assert unsealed.oldest_position(1000) == 100
    unsealed.discard(third)
    unsealed.discard(second)
    assert unsealed.oldest_position(1000) == 500
    unsealed.discard(first)
    assert unsealed.oldest_position(1000) == 1000
