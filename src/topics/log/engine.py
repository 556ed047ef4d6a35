"""The engine: the log as everything above it sees it. It begins when all was read, and ends with the journal.

Its operations on records are written where they belong: a method here is the function of that name there.
"""

from collections.abc import Callable

import msgspec

from topics.log.core import Core
from topics.log.extension import Extension
from topics.log.read import page
from topics.log.remove import deletion
from topics.log.write import append as appending
from topics.log.write.commit_queue import CommitQueue
from topics.log.write.operation import CallbackOp
from topics.storage import ROTATE_BYTES, Journal, Kind
from topics.values import WritesOff


class Engine(Core):
    # What is left to do of the start.
    _finish_start: Callable[[], bool] | None = None

    append = appending.append
    delete_records = deletion.delete_records
    preview_delete = deletion.preview_delete
    submit_delete = deletion.submit_delete
    read = page.read

    @property
    def read_only(self) -> bool:
        """True once a commit failed: reads go on, writes are off until restart."""
        return self.writes_off not in (None, WritesOff.DISK_FULL)

    @property
    def writes_off(self) -> WritesOff | None:
        """Why no writes are taken; None while they are, and while it is not known yet."""
        return self.queue.off if self.recovered else None

    def end_writes(self, off: WritesOff, why: str) -> None:
        """Nothing is acknowledged from now on until a restart, also what is on its way. Reads go on."""
        self.queue.end(off, why)

    def hold_until(self, finish_start: Callable[[], bool]) -> None:
        """There was no room for the last of what a start writes: reads are served, and all else waits."""
        self._finish_start = finish_start
        self.queue.hold()

    def resume_writes(self) -> None:
        """There is room on the disk again: what is owed to the journal goes first."""
        self.queue.try_again()
        if self._finish_start is not None:
            if not self._finish_start():
                return
            self._finish_start = None
            self.queue.let_go()
        self.clock_mark.catch_up()
        for topic in tuple(self.owed_lines):
            self.owed_lines.discard(topic)
            if not topic.dropped:
                self.note_lines(topic)
        if not self.queue.is_stuck:
            self.queue.resume()

    @property
    def queue_depth(self) -> int:
        return self.queue.depth if self.recovered else 0

    @property
    def open_group(self) -> int:
        """The group that writes gather for; 0 while there are none."""
        return self.queue.group if self.queue_depth else 0

    # --- life -------------------------------------------------------------------------------------------

    def register(self, extension: Extension) -> None:
        """Before recovery, which gives each extension back what it had saved and journalled."""
        self.extensions.append(extension)

    def start(self, journal: Journal) -> None:
        """All there was has been read: from here on frames are taken."""
        self.journal = journal
        self.queue = CommitQueue(journal, self.witness, self.counters, self.reserve)
        self.totals.start_counting()
        self.clock_mark.start(self._write_mark, self._submit_mark)

    def _write_mark(self, ms: int) -> bool:
        return self.queue.failure is None and self.queue.note_synced(self._mark(ms))

    def _submit_mark(self, ms: int, done: Callable[[], None]) -> None:
        if self.queue.is_stuck:
            return
        self.queue.submit(CallbackOp(self._mark(ms), None, lambda _: done(), lambda _: None, sync=True))

    def _mark(self, ms: int) -> list[bytes]:
        return self.journal.frame(Kind.CLOCK, b"", ts=ms)

    def rotate_if_full(self) -> None:
        if self.journal.current_bytes >= ROTATE_BYTES:
            self.rotate()

    def rotate(self) -> None:
        """Close the journal file with the heads of the topics written in it, and start another."""
        if self.queue.failure is not None:
            return
        try:
            self.require_home(self.dirs.journal)
        except OSError:
            return  # no file is begun elsewhere; writes end as soon as the node has noticed
        self.queue.flush()
        heads = sorted((topic.id, topic.assigned) for topic in self.touched if not topic.dropped)
        frame = self.journal.frame(Kind.HEADS, msgspec.msgpack.encode(heads), ts=self.now())
        if self.queue.note(frame) and self.queue.rotate():
            self.touched.clear()
            self.queue.counters.rotations += 1

    def close(self, *, clean: bool) -> None:
        if clean:
            # "Clean" promises that even a power failure after this moment finds everything.
            self.queue.sync_journal()
            clean = self.queue.failure is None
        if self.journal is not None:  # None after a recovery that failed
            self.queue.land()
            self.journal.close()
        self.store.close()
        self.reserve.close()
        self.witness.close(clean=clean)
