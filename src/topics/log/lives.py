"""Lives of topics: which of them have a name that an earlier topic had.

    drop ─▶ the name is remembered ─▶ a topic made under it is in a later life ─▶ streams say so in their ids

A name is remembered by a digest of eight bytes. Where two names share one, a topic counts as later that is
not: its readers get a longer id, and nothing else changes.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from topics.log.extension import Extension
from topics.log.topic import Topic

# Digests that are kept: 8 MB, in memory and in every snapshot. Beyond that every new topic counts as later.
MAX_NAMES = 1_000_000


class LivesState(msgspec.Struct, array_like=True, gc=False):
    """As in snapshots: ids of topics in a later life, and digests in ascending order, both as packed u64."""

    later: bytes
    names: bytes
    all_later: bool


_state = msgspec.msgpack.Decoder(LivesState)


def _digest(name: str) -> int:
    return xxh3_64_intdigest(name.encode())


class Lives(Extension):
    """What the log remembers of names whose topics are gone."""

    name = "lives"
    kinds: tuple[int, ...] = ()

    def __init__(self, topics: Callable[[], Mapping[int, Topic]]) -> None:
        """`topics` returns all topics by their ids."""
        self._topics = topics
        # Digests of the names of topics that are gone, ascending.
        self._names = array("Q")
        # Ids of topics that are in one, and the same as the last snapshot had it, if it is still true.
        self._later: set[int] = set()
        self._packed: bytes | None = None
        # There were more names than are remembered, or some that cannot be known: a log that was restored may
        # have gone on elsewhere, with topics that it does not have here.
        self.all_later = False

    def is_first(self, name: str) -> bool:
        """Whether a topic made now would be the first of that name, as far as is remembered."""
        digest = _digest(name)
        at = bisect_left(self._names, digest)
        return not self.all_later and self._names[at : at + 1] != array("Q", [digest])

    def remember(self, name: str) -> None:
        digest = _digest(name)
        at = bisect_left(self._names, digest)
        if self._names[at : at + 1] == array("Q", [digest]):
            return
        if len(self._names) < MAX_NAMES:
            self._names.insert(at, digest)
        else:
            self.all_later = True

    def begin_anew(self) -> None:
        """All topics have new epochs, and which names there were besides cannot be known."""
        self.all_later = True
        for topic in self._topics().values():
            topic.begin_later_life()
        self._later = set(self._topics())
        self._packed = None

    # --- as an extension of the log ---------------------------------------------------------------------

    def topic_shown(self, topic: Topic) -> None:
        if not topic.first_life:
            self._later.add(topic.id)
            self._packed = None

    def topic_dropped(self, topic: Topic) -> None:
        if not topic.first_life:
            self._later.discard(topic.id)
            self._packed = None
        self.remember(topic.name)

    def dump(self) -> Any:
        """Return the state; None if no topic was ever dropped."""
        if not (self._later or self._names or self.all_later):
            return None
        if self._packed is None:
            self._packed = array("Q", sorted(self._later)).tobytes()
        return LivesState(self._packed, self._names.tobytes(), self.all_later)

    def load(self, state: Any) -> None:
        known = _state.decode(msgspec.msgpack.encode(state))
        self._later = set(array("Q", known.later))
        self._names = array("Q", known.names)
        self.all_later = known.all_later
        for topic_id in self._later:
            self._topics()[topic_id].begin_later_life()
