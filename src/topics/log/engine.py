"""The engine: the log as everything above it sees it. It begins when all was read, and ends with the journal.

Its operations on records are written where they belong: a method here is the function of that name there.
"""

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from topics.core import WritesOff, moment
from topics.log.core import Core
from topics.log.extension import Extension
from topics.log.read import page
from topics.log.remove import deletion
from topics.log.write.append import Append, assign
from topics.log.write.commit_queue import CommitQueue
from topics.log.write.operation import CallbackOp
from topics.storage import ROTATE_BYTES, FrameDraft, Journal, Kind

log = logging.getLogger("topics")


class Engine(Core):
    append: Callable[[Append], None]
    # What is left to do of the start.
    _finish_start: Callable[[], bool] | None = None

    delete_records = deletion.delete_records
    preview_delete = deletion.preview_delete
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
        self.queue.refusals.end(off, why)

    def hold_until(self, finish_start: Callable[[], bool]) -> None:
        """There was no room for the last of what a start writes: reads are served, and all else waits."""
        self._finish_start = finish_start
        self.queue.refusals.hold()

    def resume_writes(self) -> None:
        """There is room on the disk again: what is owed to the journal goes first."""
        self.queue.refusals.try_again()
        if self._finish_start is not None:
            if not self._finish_start():
                return
            self._finish_start = None
            self.queue.refusals.let_go()
        self.clock_mark.catch_up()
        for topic in tuple(self.owed_lines):
            self.owed_lines.discard(topic)
            if not topic.dropped:
                self.note_lines(topic)
        if not self.queue.refusals.is_stuck:
            self.queue.refusals.resume()

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
        self.queue = CommitQueue(journal, self.witness, self.counters, self.reserve, partial(assign, self))
        # Append the records of a request, together with all that this turn of the event loop brings.
        self.append = self.queue.enqueue
        self.totals.start_counting()
        self.clock_mark.start(self._write_mark, self._submit_mark)

    def follow_clock(self) -> None:
        """This process answers for the journal: it may be told that the clock was set back."""
        self.shown_time.set_back = self._set_back
        self.now()
        self.clock_lead.look()

    def _write_mark(self, ms: int) -> bool:
        return self.queue.failure is None and self.queue.note_synced([_mark(ms)])

    def _submit_mark(self, ms: int, done: Callable[[], None]) -> None:
        if self.queue.refusals.is_stuck:
            return
        self.queue.submit(CallbackOp([_mark(ms)], None, lambda _: done(), lambda _: None, sync=True))

    def _set_back(self, now_ms: int) -> bool:
        """The clock was set back to here. What age had taken by then stays gone, and time goes on."""
        shown_ms = self.shown_time.floor_ms
        if self._may_write_again:
            # What waits was asked for at the time before, and has to stand before it in the journal.
            if self.queue.refusals.is_stuck or self.queue.has_unwritten:
                return False
            lines = [(topic.id, topic.cap_hi, topic.ttl_hi) for topic in self.by_id.values() if topic.ttl_hi]
            payload = msgspec.msgpack.encode((shown_ms, lines))
            frame = FrameDraft(Kind.CLOCK_SET_BACK, payload, ts=now_ms)
            if not self.queue.note_synced([frame]) and self._may_write_again:
                return False
        self.forget_later_times(shown_ms, now_ms)
        self.shown_time.restart(shown_ms, now_ms)
        log.warning("the clock was set back from %s to %s", moment(shown_ms), moment(now_ms))
        self.clock_lead.look()
        return True

    @property
    def _may_write_again(self) -> bool:
        """Otherwise no frame follows, and none has to agree with what happens until the restart."""
        return self.queue.off in (None, WritesOff.DISK_FULL)

    def rotate_if_full(self) -> None:
        if self.journal.current_bytes >= ROTATE_BYTES:
            self.rotate()

    def rotate_to_import(self) -> bool:
        """Make sure that the journal goes on in a file that may import segments; False if it cannot."""
        if not self.journal.may_adopt:
            self.rotate(to_adopt=True)
        return self.journal.may_adopt

    def rotate(self, *, to_adopt: bool = False) -> None:
        """Close the journal file with the heads of the topics written in it, and start another."""
        if self.queue.failure is not None:
            return
        try:
            self.require_home(self.dirs.journal)
        except OSError:
            return  # no file is begun elsewhere; writes end as soon as the node has noticed
        self.queue.flush()
        # Where writes are held, seqs are given out that no frame has yet: those topics close the next file.
        held = {topic for topic in self.touched if self.queue.holds(topic)}
        touched = (topic for topic in self.touched - held if not topic.dropped)
        heads = sorted((topic.id, topic.assigned) for topic in touched)
        frame = FrameDraft(Kind.HEADS, msgspec.msgpack.encode(heads), ts=self.now())
        if self.queue.note([frame]) and self.queue.rotate(to_adopt=to_adopt):
            self.touched = held
            self.queue.counters.rotations += 1

    def write_ahead(self) -> None:
        """Beside the loop: the next file of the journal is written before it is needed."""
        self.reserve.write_ahead(ROTATE_BYTES, self.journal.ahead_bytes)

    def close(self, *, clean: bool) -> None:
        if clean:
            # The page then knows when it was: leases go on from there.
            self.now()
            # "Clean" promises that even a power failure after this moment finds everything.
            self.queue.sync_journal()
            clean = self.queue.failure is None
        if self.journal is not None:  # None after a recovery that failed
            self.queue.land()
            self.journal.close(clean=clean)
        self.store.close()
        self.reserve.close()
        self.witness.close(clean=clean)


def _mark(ms: int) -> FrameDraft:
    return FrameDraft(Kind.CLOCK, b"", ts=ms)
