"""Records of a large write on their way into segments: gathered in runs, and written when it is worth it.

    fill (until there is enough for a file)  ─▶  write  ─▶  fill  ─▶  …  ─▶  sync

All of it happens beside the loop, one step after the other, and holds no more than about one file in memory.
"""

from collections.abc import Iterator

from topics.log.core import Core
from topics.log.run import HotColumns, Run
from topics.log.topic import Topic
from topics.log.write.adopted import Adopted
from topics.log.write.adoption import Adoption
from topics.log.write.batch import Batch
from topics.storage import SegmentWriter
from topics.values import MAX_BULK_RECORDS

# Where it cannot be avoided that a file has an open run, it should at least be a large one.
FILE_BYTES = 32 * 1024 * 1024
# Of a batch that is added. With what a run has before, no frame gives out more seqs than any other.
MAX_PIECE_RECORDS = 4096


class AdoptedFiles:
    def __init__(self, core: Core, adoption: Adoption) -> None:
        self._core = core
        # Of each topic: the seq of its next record, and the time that all of them have.
        self._next = {rows.topic: rows.first_seq for rows in adoption.members}
        self._ts = {rows.topic: rows.ts for rows in adoption.members}
        unsealed = core.store.unsealed
        self._max_events = min(unsealed.max_events, MAX_BULK_RECORDS - MAX_PIECE_RECORDS)
        self._max_bytes = unsealed.max_bytes
        self._open: dict[Topic, Run] = {}
        self._full: list[tuple[Topic, Run]] = []
        self._full_bytes = self._open_bytes = 0
        self.runs: dict[Topic, list[Adopted]] = {}
        self.numbers: list[int] = []

    def fill(self, pieces: Iterator[tuple[Topic, Batch]]) -> bool:
        """Take so many that there is enough for a file; False when there were no more."""
        for topic, batch in pieces:
            self._add(topic, batch)
            if self._full_bytes + self._open_bytes >= FILE_BYTES:
                return True
        return False

    def _add(self, topic: Topic, batch: Batch) -> None:
        first, ts = self._next[topic], self._ts[topic]
        run = self._open.get(topic)
        if run is None:
            run = self._open[topic] = Run(topic.id, first, HotColumns(first))
        self._open_bytes += run.extend(batch, batch.render(first, ts), ts)
        self._next[topic] = first + batch.count
        assert run.hot is not None
        if run.count >= self._max_events or run.hot.size >= self._max_bytes:
            del self._open[topic]
            self._full.append((topic, run))
            self._open_bytes -= run.hot.weight
            self._full_bytes += run.hot.weight

    def write(self, number: int, *, is_last: bool) -> None:
        """Full runs, and all others too if this is the last file or if those are most of what there is."""
        chosen, self._full = self._full, []
        self._full_bytes = 0
        if is_last or self._open_bytes >= FILE_BYTES // 2:
            chosen += self._open.items()
            self._open, self._open_bytes = {}, 0
        if not chosen:
            return
        core = self._core
        core.require_home(core.dirs.segments)
        writer = SegmentWriter(number)
        for topic, run in chosen:
            assert run.hot is not None
            writer.add(topic.id, run.hot.view(), None)
        self.numbers.append(number)
        writer.write(core.fs, core.dirs.segments, number)
        for topic, run in chosen:
            adopted = Adopted(run.base, run.count, run.live_bytes, run.last_ts, number)
            self.runs.setdefault(topic, []).append(adopted)

    def sync(self) -> None:
        """The names of the files are durable as well."""
        self._core.fs.sync_dir(self._core.dirs.segments)

    def remove(self) -> None:
        for number in self.numbers:
            self._core.fs.remove(self._core.store.path(number))

    def leave(self) -> None:
        """On the loop: checkpoints remove the files in time, as they do those whose last record has gone."""
        for number in self.numbers:
            self._core.store.note_file(number)
