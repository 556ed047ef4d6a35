"""Whether what a snapshot says about a topic can be true, apart from any record."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from topics.log.remove.ledger import KIND_NAMES
from topics.log.seal.snapshot_state import TopicState


def topic_findings(topic: TopicState) -> Iterator[str]:
    """What cannot be, in sentences."""
    if not topic.seq_base <= topic.floor <= topic.head + 1:
        yield f"the floor {topic.floor} is not between {topic.seq_base} and {topic.head + 1}"
    for name in ("cap_hi", "ttl_hi", "trim_hi", "lost_hi"):
        if getattr(topic, name) > topic.head:
            yield f"the line {name} lies above the head"
    expected = 0
    for run in sorted(topic.runs, key=lambda run: run.base):
        if run.base < expected:
            yield f"the runs at {run.base} overlap"
        expected = run.base + run.count
    if expected > topic.head + 1:
        yield f"there are records above the head {topic.head}"
    yield from _account_findings(topic)


def _account_findings(topic: TopicState) -> Iterator[str]:
    """Every seq below the floor is accounted for, by the ledger or by a hole."""
    firsts, lasts = array("q", topic.ledger[0]), array("q", topic.ledger[1])
    if any(kind >= len(KIND_NAMES) for kind in topic.ledger[2]):
        yield "the ledger has a kind of loss that there is not"
    told = sorted([*zip(firsts, lasts, strict=True), *((hole[0], hole[1]) for hole in topic.holes)])
    expected = topic.seq_base
    for first, last in told:
        if first > expected and expected < topic.floor:
            yield f"nothing says what became of seqs {expected} to {min(first, topic.floor) - 1}"
        expected = max(expected, last + 1)
    if expected < topic.floor:
        yield f"nothing says what became of seqs {expected} to {topic.floor - 1}"
