"""Which records of a stretch a reader gets: those that are alive, not its own, and of its choice.

Whatever is left out here is passed in silence: it was deleted, or the reader did not want it.
"""

import msgspec
import numpy as np

from topics.core import invalid
from topics.log.read.audit import Steps
from topics.log.run import Run
from topics.log.topic import Topic
from topics.storage import I64, Columns


class TagMatch:
    """A tag predicate: one tag exactly, or every tag with a prefix."""

    __slots__ = ("is_prefix", "value")

    def __init__(self, value: str, is_prefix: bool) -> None:
        self.value = value
        self.is_prefix = is_prefix

    def matches(self, tag: str | None) -> bool:
        if tag is None:
            return False
        return tag.startswith(self.value) if self.is_prefix else tag == self.value

    def to_json(self) -> list[str]:
        return ["tag", "Glob", self.value + "*"] if self.is_prefix else ["tag", "Eq", self.value]


def parse_match(value: object) -> TagMatch:
    """`["tag","Eq",v]`, `["tag","Glob","p*"]`, or a bare string where a trailing star means Glob."""
    if isinstance(value, str):
        return TagMatch(value[:-1], True) if value.endswith("*") else TagMatch(value, False)
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(v, str) for v in value):
        raise invalid('match must be a string or ["tag", "Eq" | "Glob", value]')
    field, op, text = value
    if field != "tag":
        raise invalid('match: only "tag" can be matched')
    if op == "Eq":
        return TagMatch(text, False)
    if op != "Glob":
        raise invalid('match: the operator must be "Eq" or "Glob"')
    if not text.endswith("*"):
        raise invalid("match: a Glob value must end with *")
    return TagMatch(text[:-1], True)


def survivors(run: Run, columns: Columns, start: int, stop: int, nodes: frozenset[str] | None) -> np.ndarray:
    """Indexes of the records in a stretch that are alive and not from the reader's own nodes."""
    if run.dead is None:
        wanted = np.arange(start, stop)
    else:
        wanted = np.flatnonzero(np.frombuffer(run.dead, np.uint8)[start:stop] == 0) + start
    codes, names = columns.nodes
    if nodes and codes is not None:
        own = [code for code, name in enumerate(names, 1) if name in nodes]
        if own:
            wanted = wanted[~np.isin(codes[wanted], own)]
    return wanted


class Choice(msgspec.Struct, frozen=True, gc=False):
    """What a reader wants to see of a topic: some tags, some time."""

    match: TagMatch | None = None
    # Inclusive.
    since_ts: int | None = None
    # Exclusive.
    until_ts: int | None = None

    def is_outside(self, run: Run) -> bool:
        """No record of the run can be wanted, so it need not be looked at."""
        since, until = self.since_ts, self.until_ts
        return (since is not None and run.last_ts < since) or (until is not None and run.first_ts >= until)

    def survivors(
        self, run: Run, columns: Columns, start: int, stop: int, nodes: frozenset[str] | None
    ) -> I64:
        """The same as above, as far as they are wanted."""
        if self.since_ts is not None:
            start = max(start, int(np.searchsorted(columns.ts, self.since_ts)))
        if self.until_ts is not None:
            stop = min(stop, int(np.searchsorted(columns.ts, self.until_ts)))
        alive = survivors(run, columns, start, stop, nodes)
        return alive if self.match is None else alive[_tagged(columns, alive, self.match)]


def _tagged(columns: Columns, indexes: I64, match: TagMatch) -> np.ndarray:
    codes, names = columns.tags
    if codes is None:
        return np.zeros(len(indexes), np.bool_)
    return np.isin(codes[indexes], [code for code, tag in enumerate(names, 1) if match.matches(tag)])


EVERYTHING = Choice()


def last_steps(
    topic: Topic, count: int, nodes: frozenset[str] | None = None, choice: Choice | None = None
) -> Steps[int]:
    """The cursor behind which the last so many records lie that this reader would get.

    From the end back, one run after the other; it pauses after each that had to be opened.
    """
    if not count:
        return topic.head
    if not topic.config.dedupe_node:
        nodes = None
    is_choosy = choice is not None or bool(nodes)
    choice = choice or EVERYTHING
    left, floor, head = count, topic.floor, topic.head
    for run in reversed(tuple(topic.runs)):
        first, last = max(run.base, floor), min(run.last, head)
        if last < first or not run.live_count or choice.is_outside(run):
            continue
        is_whole = first == run.base and last == run.last
        if is_whole and not is_choosy and run.live_count < left:
            left -= run.live_count
            continue
        columns = topic.store.columns(run)
        found = choice.survivors(run, columns, first - run.base, last - run.base + 1, nodes)
        if len(found) >= left:
            return run.base + int(found[-left]) - 1
        left -= len(found)
        yield
    return floor - 1
