"""What a tombstone says: which seqs a reader missed, and a hint why; and which readers are owed one.

A reader whose cursor stands below the loss line is told of the whole gap at once, and goes on at the floor. A
hole inside the log is announced when the cursor reaches it. What was deleted is passed over in silence.
"""

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import NO_LIFE
from topics.log.remove import ledger
from topics.log.topic import Topic
from topics.log.watermarks import Hole


class Tombstone(msgspec.Struct, gc=False):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int
    # Of `recreated` only, and only for a reader that named one: the epoch that its cursor belongs to.
    previous_epoch: int | UnsetType = UNSET

    def joined(self, later: "Tombstone | None") -> "Tombstone":
        """Both gaps as one; between them there may be records."""
        if later is None:
            return self
        reason = self.reason if self.reason == later.reason else "mixed"
        joined = _tombstone(self.gap_from, later.gap_to, reason, later.earliest_seq, later.head_seq)
        joined.missed_estimate = self.missed_estimate + later.missed_estimate
        return joined

    def within(self, stop: int) -> "Tombstone":
        """The part of the gap up to `stop`: scans of neighbouring ranges add up to the whole."""
        return _tombstone(
            self.gap_from, min(self.gap_to, stop), self.reason, self.earliest_seq, self.head_seq
        )


def _tombstone(gap_from: int, gap_to: int, reason: str, earliest_seq: int, head_seq: int) -> Tombstone:
    return Tombstone(gap_from, gap_to, reason, max(gap_to - gap_from + 1, 0), earliest_seq, head_seq)


def locate(topic: Topic, from_seq: int, epoch: int | None) -> tuple[int, Tombstone | None, int]:
    """Where the walk starts, the announcement owed before it, and the seq before which it must stop."""
    head, floor = topic.head, topic.floor
    position, gap = from_seq, None
    if from_seq > head or (epoch is not None and epoch != topic.id):
        position, gap = floor - 1, _recreated(topic, epoch)
    # Below the first seq there was never anything to lose.
    elif from_seq + 1 < floor and max(from_seq + 1, topic.seq_base) < topic.loss_line:
        reason = _gap_reason(topic, from_seq + 1)
        position, gap = floor - 1, _tombstone(from_seq + 1, floor - 1, reason, floor, head)
    hole = topic.hole_after(position) if topic.holes else None
    if hole is not None and hole.first <= position + 1 and gap is None:
        gap = _tombstone(position + 1, hole.last, hole_reason(hole), floor, head)
        position = hole.last
        hole = topic.hole_after(position)
    return position, gap, head + 1 if hole is None else hole.first


def passed_over(topic: Topic, from_seq: int, position: int) -> Tombstone | None:
    """What a reader with this cursor has lost up to `position`, if it goes on there."""
    found: Tombstone | None = None
    while from_seq < position:
        from_seq, gap, stop_before = locate(topic, from_seq, None)
        if gap is not None:
            found = gap if found is None else found.joined(gap)
        # As far as the next hole there is nothing to tell.
        from_seq = max(from_seq, stop_before - 1)
    return found


def _recreated(topic: Topic, epoch: int | None) -> Tombstone:
    """The range is what this life has lost so far. Mostly that is nothing: it then ends before it begins."""
    found = _tombstone(topic.seq_base, topic.floor - 1, "recreated", topic.floor, topic.head)
    if epoch is not None and epoch != NO_LIFE:
        found.previous_epoch = epoch
    return found


def _gap_reason(topic: Topic, gap_from: int) -> str:
    ttl = topic.ttl_hi >= gap_from
    cap = topic.cap_hi >= gap_from
    if ttl and cap:
        return "mixed"
    if ttl:
        return "ttl"
    if not cap and topic.trim_hi >= gap_from and topic.lost_hi < gap_from:
        return "source_trim"
    return "cap"


def hole_reason(hole: Hole) -> str:
    return "source_trim" if hole.kind == ledger.TRIM else "cap"
