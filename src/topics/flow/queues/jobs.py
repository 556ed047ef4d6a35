"""Jobs as stored records: which of them are live, and their text without the origin and with the lease.

A claimed job is cut from the stored row: everything from `"data":` to the closing brace is copied as it is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from topics.log import HotColumns, Run, Topic, surviving_damage
from topics.storage import DATA_KEY, END, HEAD, META_KEY, TAG, Columns, Records, join_records

_encode = msgspec.json.encode
# Rows are cut together while that means copying little.
_SMALL_BYTES = 64 * 1024


class StoredJob(msgspec.Struct, gc=False):
    """A stored job, ready to be handed out under any lease."""

    seq: int
    # `"$seq":…,"$ts":…,` and the tag, if there is one.
    head: bytes
    # `"data":…}`, or `"data":…,"meta":…}`.
    tail: bytes


def with_leases(
    jobs: list[StoredJob], first_id: int, deadline_ms: int, deliveries: Mapping[int, int]
) -> list[bytes]:
    """The claimed jobs as JSON, without the opening brace of each; the deadline in Unix time.

    Their leases' ids count up from the first.
    """
    return [
        b'%b"lease_id":"lease_%x","deadline":%d,"deliveries":%d,%b'
        % (job.head, lease_id, deadline_ms, deliveries[job.seq], job.tail)
        for lease_id, job in enumerate(jobs, first_id)
    ]


# --- liveness -----------------------------------------------------------------------------------------------


@surviving_damage
def live_from(topic: Topic, start: int, limit: int, stop_before: int | None = None) -> list[int]:
    """The first live seqs from `start` on, ascending; only visible ones."""
    end = topic.head + 1 if stop_before is None else min(stop_before, topic.head + 1)
    found: list[int] = []
    for run, first, stop in topic.runs.stretches(max(start, topic.floor), end):
        if not run.live_count:
            continue
        topic.load_marks(run)
        enough = min(stop, first + limit - len(found))
        if run.dead is None or run.dead.find(1, first, enough) < 0:
            found.extend(range(run.base + first, run.base + enough))
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
    return seqs.difference(_live_among(topic, sorted(seqs)))


@surviving_damage
def _live_among(topic: Topic, seqs: list[int]) -> list[int]:
    live: list[int] = []
    for run, inside in topic.runs.by_run(
        seqs[bisect_left(seqs, topic.floor) : bisect_right(seqs, topic.head)]
    ):
        topic.load_marks(run)
        dead = run.dead
        live += inside if dead is None else [seq for seq in inside if not dead[seq - run.base]]
    return live


# --- text ---------------------------------------------------------------------------------------------------


@surviving_damage
def read_jobs(topic: Topic, seqs: Sequence[int], max_bytes: int) -> list[StoredJob]:
    """The jobs with these seqs, as many as fit; always one. What turns out to be lost is left out."""
    jobs: list[StoredJob] = []
    for run, inside in topic.runs.by_run(seqs):
        for job in _plain_stretch(run, inside) or _one_by_one(topic, run, inside):
            max_bytes -= len(job.tail)
            if max_bytes < 0 and jobs:
                return jobs
            jobs.append(job)
    return jobs


def _plain_stretch(run: Run, seqs: Sequence[int]) -> list[StoredJob] | None:
    """Jobs side by side in memory that are nothing but data, which most are: their rows are cut at once."""
    hot, count = run.hot, len(seqs)
    if hot is None or hot.data_lens is not None or hot.tags is not None:
        return None
    first = seqs[0] - run.base
    if seqs[-1] - seqs[0] + 1 != count:
        return None
    begin, end = hot.ends[first - 1] if first else 0, hot.ends[first + count - 1]
    if end - begin > _SMALL_BYTES:
        return None
    jobs = []
    for seq, row in zip(seqs, bytes(hot.rows[begin : end - 1]).split(b"\n"), strict=True):
        # Behind the opening brace. Inside of a text there is no such key, for its quotes would be escaped.
        at = row.index(DATA_KEY)
        jobs.append(StoredJob(seq, row[1:at], row[at:]))
    return jobs


def _one_by_one(topic: Topic, run: Run, seqs: Sequence[int]) -> Iterator[StoredJob]:
    reader = _RunReader(topic, run)
    return map(reader.job, seqs)


@surviving_damage
def read_records(topic: Topic, seqs: Sequence[int]) -> Records:
    """The jobs with these seqs, taken apart. What turns out to be lost is left out."""
    return join_records(
        [
            topic.store.columns(run).records(np.array(inside) - run.base)
            for run, inside in topic.runs.by_run(seqs)
        ]
    )


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
        else:
            columns = self._columns = topic.store.columns(run)
            self._ts_at = lambda index: int(columns.ts[index])
        self._tags = self._columns.tags

    def job(self, seq: int) -> StoredJob:
        index = seq - self.run.base
        columns = self._columns
        end = int(columns.ends[index])
        head = HEAD % (seq, self._ts_at(index))
        data_lens = columns.data_lens
        if data_lens is None:  # a plain row: an opening brace and the head are all that comes first
            begin = (int(columns.ends[index - 1]) if index else 0) + 1 + len(head)
        else:
            meta_len = 0 if columns.meta_lens is None else int(columns.meta_lens[index])
            data_end = end - len(END) - (meta_len + len(META_KEY) if meta_len else 0)
            begin = data_end - int(data_lens[index]) - len(DATA_KEY)
        tags = self._tags
        if tags is not None and tags.codes is not None and (code := tags.codes[index]):
            head += TAG % _encode(tags.names[code - 1])
        return StoredJob(seq, head, bytes(columns.rows[begin : end - 1]))
