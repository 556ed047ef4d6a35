"""Jobs as stored records: which of them are live, and their text without the origin and with the lease.

A claimed job is cut from the stored row: everything from `"data":` to the closing brace is copied as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from topics.flow.queues.leases import Lease
from topics.log.remove.removal import surviving_damage
from topics.log.run import HotColumns, Run
from topics.log.topic import Topic
from topics.storage.columns import DATA_KEY, META_KEY, U32, Columns

_encode = msgspec.json.encode


class Job(NamedTuple):
    """A stored job, ready to be handed out under any lease."""

    seq: int
    # `"$seq":…,"$ts":…,` and the tag, if there is one.
    head: bytes
    # `"data":…}`, or `"data":…,"meta":…}`.
    tail: bytes

    def text(self, lease: Lease, deliveries: int) -> bytes:
        """The claimed job as JSON, without its opening brace."""
        return b'%b"lease_id":"lease_%x","deadline":%d,"deliveries":%d,%b' % (
            self.head,
            lease.id,
            lease.deadline,
            deliveries,
            self.tail,
        )


class Letter(NamedTuple):
    """All that moves to another topic with a job."""

    data: bytes
    meta: bytes | None
    node: str | None
    tag: str | None


# --- liveness -----------------------------------------------------------------------------------------------


def live_from(topic: Topic, start: int, limit: int, stop_before: int | None = None) -> list[int]:
    """The first live seqs from `start` on, ascending; only visible ones."""
    end = topic.head + 1 if stop_before is None else min(stop_before, topic.head + 1)
    return surviving_damage(topic, lambda: _live_from(topic, start, limit, end))


def _live_from(topic: Topic, start: int, limit: int, end: int) -> list[int]:
    found: list[int] = []
    seq = max(start, topic.floor)
    for index in range(max(bisect_right(topic.bases, seq) - 1, 0), len(topic.runs)):
        run = topic.runs[index]
        first, stop = max(seq - run.base, 0), min(run.count, end - run.base)
        if stop <= first or not run.live_count:
            continue
        topic.load_marks(run)
        if run.dead is None:
            found.extend(range(run.base + first, run.base + min(stop, first + limit - len(found))))
        else:
            _find_unmarked(run, run.dead, first, stop, limit, found)
        if len(found) >= limit:
            break
    return found


def _find_unmarked(run: Run, dead: bytearray, first: int, stop: int, limit: int, found: list[int]) -> None:
    at = dead.find(0, first, stop)
    while at >= 0 and len(found) < limit:
        found.append(run.base + at)
        at = dead.find(0, at + 1, stop)


def gone_among(topic: Topic, seqs: set[int]) -> set[int]:
    """Those of the seqs that are not live any more."""
    live = surviving_damage(topic, lambda: _live_among(topic, sorted(seqs)))
    return seqs.difference(live)


def _live_among(topic: Topic, seqs: list[int]) -> list[int]:
    live: list[int] = []
    for run, inside in _by_run(topic, seqs[bisect_left(seqs, topic.floor) : bisect_right(seqs, topic.head)]):
        topic.load_marks(run)
        dead = run.dead
        live += inside if dead is None else [seq for seq in inside if not dead[seq - run.base]]
    return live


def _by_run(topic: Topic, seqs: Sequence[int]) -> Iterator[tuple[Run, Sequence[int]]]:
    """Ascending seqs, grouped by the run that holds them; those that no run holds any more are left out."""
    at = 0
    while at < len(seqs):
        index = bisect_right(topic.bases, seqs[at]) - 1
        run = topic.runs[index] if index >= 0 else None
        if run is None or seqs[at] > run.last or not run.live_count:
            at += 1
            continue
        stop = bisect_right(seqs, run.last, at)
        yield run, seqs[at:stop]
        at = stop


# --- text ---------------------------------------------------------------------------------------------------


def read_jobs(topic: Topic, seqs: Sequence[int], max_bytes: int) -> list[Job]:
    """The jobs with these seqs, as many as fit; always one. What turns out to be lost is left out."""
    return surviving_damage(topic, lambda: _read_jobs(topic, seqs, max_bytes))


def _read_jobs(topic: Topic, seqs: Sequence[int], max_bytes: int) -> list[Job]:
    jobs: list[Job] = []
    for run, inside in _by_run(topic, seqs):
        reader = _RunReader(topic, run)
        for seq in inside:
            job = reader.job(seq)
            max_bytes -= len(job.tail)
            if max_bytes < 0 and jobs:
                return jobs
            jobs.append(job)
    return jobs


def read_letters(topic: Topic, seqs: Sequence[int]) -> dict[int, Letter]:
    return surviving_damage(topic, lambda: _read_letters(topic, seqs))


def _read_letters(topic: Topic, seqs: Sequence[int]) -> dict[int, Letter]:
    letters: dict[int, Letter] = {}
    for run, inside in _by_run(topic, seqs):
        columns = topic.store.columns(run)
        for seq in inside:
            letters[seq] = _letter(columns, seq - run.base)
    return letters


def _letter(columns: Columns, index: int) -> Letter:
    end = int(columns.ends[index]) - 2  # the closing brace and the newline
    meta_len = 0 if columns.meta_lens is None else int(columns.meta_lens[index])
    data_end = end - (meta_len + len(META_KEY) if meta_len else 0)
    rows = columns.rows
    return Letter(
        bytes(rows[data_end - int(columns.data_lens[index]) : data_end]),
        bytes(rows[end - meta_len : end]) if meta_len else None,
        _name(columns.nodes, columns.node_codes, index),
        _name(columns.tags, columns.tag_codes, index),
    )


def _name(names: list[str], codes: U32 | None, index: int) -> str | None:
    code = 0 if codes is None else int(codes[index])
    return names[code - 1] if code else None


class _RunReader:
    """Cuts jobs from one run. Growing columns are read in place: a view of them costs more than the jobs."""

    __slots__ = ("_columns", "_tags", "_ts_at", "run")

    def __init__(self, topic: Topic, run: Run) -> None:
        self.run = run
        self._columns: HotColumns | Columns
        self._ts_at: Callable[[int], int]
        hot = run.hot
        if hot is not None:
            self._columns = hot
            self._ts_at = hot.ts_at
            self._tags = hot.tag_names.names
        else:
            columns = self._columns = topic.store.columns(run)
            self._ts_at = lambda index: int(columns.ts[index])
            self._tags = columns.tags

    def job(self, seq: int) -> Job:
        index = seq - self.run.base
        columns = self._columns
        end = int(columns.ends[index])
        meta_len = 0 if columns.meta_lens is None else int(columns.meta_lens[index])
        data_end = end - 2 - (meta_len + len(META_KEY) if meta_len else 0)
        head = b'"$seq":%d,"$ts":%d,' % (seq, self._ts_at(index))
        data_lens = columns.data_lens
        if data_lens is None:  # a plain row: an opening brace and the head are all that comes first
            begin = (int(columns.ends[index - 1]) if index else 0) + 1 + len(head)
        else:
            begin = data_end - int(data_lens[index]) - len(DATA_KEY)
        if columns.tag_codes is not None and columns.tag_codes[index]:
            head += b'"$tag":%b,' % _encode(self._tags[columns.tag_codes[index] - 1])
        return Job(seq, head, bytes(columns.rows[begin : end - 1]))
