"""What the workers of a queue must be told: every job that was lost before any of them had finished it."""

from __future__ import annotations

from tests.crash.effects import TopicModel
from topics.flow.queues.jobs import gone_among
from topics.flow.queues.losses import Notice
from topics.log.topic import Topic


def check_notice(known: TopicModel, notice: Notice | None, now: int) -> None:
    """A worker is told of `notice` now, or of nothing.

    `now`: what is too old by then is gone, whether or not the disk knows how late it is.
    """
    live = {record.seq for record in known.unexpired(now)}
    must = known.acknowledged - live - known.finished - known.told - known.doubtful
    if notice is None:
        assert not must, f"{known.name}: {sorted(must)} were lost, and no worker is told"
        return
    gap = notice.tombstone
    first, last, count = gap.gap_from, gap.gap_to, gap.missed_estimate
    outside = [seq for seq in must if not first <= seq <= last]
    assert not outside, f"{known.name}: {outside} were lost, and a worker is told of {first} to {last}"
    assert count >= len(must), f"{known.name}: {len(must)} jobs were lost, and a worker is told of {count}"
    if not known.has_crashed:
        assert must, f"{known.name}: a worker is told of {gap}, and nothing was lost"
        assert (first, last, count) == (min(must), max(must), len(must)), f"{known.name}: {gap} for {must}"
    elif not known.has_lost_power:
        can = [s for s in range(first, last + 1) if s not in live and s not in known.finished]
        assert count <= len(can), f"{known.name}: {count} jobs lost among {can}"


def note_told(known: TopicModel, topic: Topic, notice: Notice) -> None:
    gap = notice.tombstone
    known.told |= gone_among(topic, set(range(gap.gap_from, gap.gap_to + 1)))
    known.has_crashed = known.has_lost_power = False
