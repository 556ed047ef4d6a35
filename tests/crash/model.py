"""What was acknowledged, and what must therefore be there after a crash.

Operations are events in the order of the journal. A killed process loses none that was acknowledged; a power
loss loses none that was acknowledged after a sync. Whatever else happens, what is found afterwards is the
state after *some* first so many events: nothing invented, nothing back, no later event without the earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.crash.effects import Added, Configured, Effect, Record, Removed, TopicModel
from topics.log import read_page
from topics.log.engine import Engine
from topics.log.topic import Topic

Rows = dict[int, bytes]
Gaps = list[tuple[int, int]]
# By topic and consumer: seq and epoch.
NamedCursors = dict[tuple[str, str], tuple[int, int]]
# Events that are certain are forgotten when so many have gathered.
KEPT_EVENTS = 64


@dataclass(slots=True)
class RouterModel:
    name: str
    source: TopicModel
    dest: TopicModel
    match: tuple[str, str] | None
    cursor: int


@dataclass(slots=True)
class Event:
    """One operation. `position`: its frames lie below it, once it is acknowledged."""

    index: int
    effects: list[Effect]
    is_acked: bool = False
    is_safe: bool = False
    position: int = 0
    # Topics as they were before an event that is only presumed: nobody was shown what age took in it.
    _before: list[tuple[TopicModel, dict[int, Record], int, int]] = field(default_factory=list)

    def apply(self) -> None:
        for effect in self.effects:
            effect.apply()

    def _topics(self) -> list[TopicModel]:
        return [effect.topic for effect in self.effects if isinstance(effect, Added | Removed | Configured)]

    def topics(self) -> set[int]:
        """Their ids."""
        return {topic.id for topic in self._topics()}

    def presume(self) -> None:
        self._before = [
            (topic, topic.live.copy(), topic.live_bytes, topic.ttl_hi) for topic in self._topics()
        ]
        self.apply()
        for effect in self.effects:
            if isinstance(effect, Removed):
                effect.topic.doubtful.update(record.seq for record in effect.removed)

    def undo(self) -> None:
        for effect in reversed(self.effects):
            effect.undo()
        for topic, *before in self._before:
            topic.live, topic.live_bytes, topic.ttl_hi = before


@dataclass(slots=True)
class Model:
    topics: dict[int, TopicModel] = field(default_factory=dict)
    routers: dict[str, RouterModel] = field(default_factory=dict)
    # What was committed through stages, by owner, id and batch: how many records each topic got.
    commits: dict[tuple[str, str, int], dict[str, int]] = field(default_factory=dict)
    cursors: NamedCursors = field(default_factory=dict)
    # Names that a topic had which was dropped.
    gone_names: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    next_index: int = 0

    # --- while it runs ----------------------------------------------------------------------------------

    def event(self, *effects: Effect) -> Event:
        """An operation was submitted."""
        event = Event(self.next_index, list(effects))
        self.next_index += 1
        self.events.append(event)
        return event

    def overtake(self, slow: Event) -> None:
        """What came behind this one, and concerns none of its topics, stands before it in the journal."""
        at = self.events.index(slow)
        held, free, topics = [slow], [], slow.topics()
        for event in self.events[at + 1 :]:
            if topics.isdisjoint(event.topics()):
                free.append(event)
            else:
                held.append(event)
                topics |= event.topics()
        indexes = [event.index for event in self.events[at:]]
        self.events[at:] = [*free, *held]
        for event, index in zip(self.events[at:], indexes, strict=True):
            event.index = index

    def refuse(self, event: Event) -> None:
        """It was refused before it reached the journal."""
        self.events.remove(event)

    def ack(self, event: Event, *, is_safe: bool, position: int) -> None:
        event.is_acked = True
        event.is_safe = is_safe
        event.position = position
        event.apply()
        for effect in event.effects:
            if isinstance(effect, Added):
                effect.topic.shown_head = max(effect.topic.shown_head, effect.topic.head)
                effect.topic.acknowledged.update(record.seq for record in effect.records)
            elif isinstance(effect, Removed):
                effect.topic.finished.update(record.seq for record in effect.removed)
        if len(self.events) > KEPT_EVENTS:
            self._forget_certain()

    def _forget_certain(self) -> None:
        """Let go of events that no crash can undo."""
        certain = max((event.index for event in self.events if event.is_safe), default=-1)
        self.events = [event for event in self.events if event.index > certain or not event.is_acked]

    # --- after a crash ----------------------------------------------------------------------------------

    def presume_all(self) -> dict[int, list[int]]:
        """The process is gone: whatever was on its way may have arrived, and what was volatile has gone.

        Returns the seqs of the latter, by topic.
        """
        volatile = {
            topic.id: [record.seq for record in topic.live.values() if record.is_volatile]
            for topic in self.topics.values()
        }
        before = {topic.id: set(topic.live) for topic in self.topics.values()}
        for event in self.events:
            if not event.is_acked:
                event.presume()
        for topic in self.topics.values():
            topic.presumed = before.get(topic.id, set()) ^ topic.live.keys()
        return volatile

    def settle(self, fits: Callable[[], str | None], synced: int | None) -> list[Event]:
        """Take events back, the latest first, until the rest explains what was found.

        `synced`: how far the journal was known to be safe; None when only the process was killed. Returns the
        events that are gone. Fails when that would take one along which must not be gone.
        """
        gone: list[Event] = []
        problems: list[str] = []
        while (problem := fits()) is not None:
            problems.append(problem)
            story = "\n".join(problems)
            assert self.events, f"what was found is no state that ever was:\n{story}"
            event = self.events.pop()
            was_safe = event.is_safe or (synced is not None and 0 < event.position <= synced)
            if event.is_acked and (was_safe or synced is None):
                raise AssertionError(f"an acknowledged operation is missing:\n{story}")
            event.undo()
            gone.append(event)
        return gone


def lost_records(gone: list[Event]) -> dict[int, list[int]]:
    """Seqs of acknowledged records whose events are gone, by topic."""
    lost: dict[int, list[int]] = {}
    for event in gone:
        if event.is_acked:
            for effect in event.effects:
                if isinstance(effect, Added):
                    lost.setdefault(effect.topic.id, []).extend(r.seq for r in effect.records)
    return lost


def observe(engine: Engine, topic: Topic, from_seq: int = 0) -> tuple[Rows, Gaps]:
    """Everything a reader gets who follows the cursor to the head: rows by seq, and announcements."""
    rows: Rows = {}
    gaps: Gaps = []
    while True:
        page = read_page(engine, topic, from_seq, 1000, 1 << 20)
        if page.tombstone is not None:
            gaps.append((page.tombstone.gap_from, page.tombstone.gap_to))
        for line in page.rows.splitlines():
            rows[int(line[8 : line.index(b",")])] = line
        if page.caught_up:
            return rows, gaps
        assert page.next_from_seq > from_seq or page.tombstone is not None, "a reader is stuck"
        from_seq = page.next_from_seq


def covers(gaps: Gaps, seq: int) -> bool:
    return any(first <= seq <= last for first, last in gaps)
