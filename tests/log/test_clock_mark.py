"""What age has taken stays taken, even if the power goes and the clock is set back."""

from __future__ import annotations

import errno

import pytest

from tests.log.harness import Lab, gap
from tests.support.damage import cut
from topics.log.clock import AHEAD_MS
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.frame import Kind

TTL_MS = 100


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", ttl_ms=TTL_MS)
    lab.write_each("t", 3)
    lab.engine.queue.sync_journal()
    return lab


def lose_power(lab: Lab, synced: int | None = None) -> None:
    """What no sync has covered is gone, and so is the page: it is of another boot."""
    journal = lab.engine.journal
    synced, newest = journal.synced if synced is None else synced, journal.files[-1]
    lab.kill()
    cut(lab.journal_files()[-1], FILE_HEADER_BYTES + max(synced - newest.base, 0))
    lab.disk.boot += b"+"
    lab.open()


def ttl_line(lab: Lab) -> int:
    assert lab.seqs("t") == []
    assert gap(lab.diff("t"))[2] == "ttl"
    return lab.topic("t").ttl_hi


def marks(lab: Lab) -> int:
    return sum(frame.kind == Kind.CLOCK for frame in lab.frames())


def test_a_mark_is_synced_before_anything_goes_by_it(lab: Lab) -> None:
    calls: list[str] = []
    journal = lab.engine.journal
    write, begin = journal.write, journal.begin_sync
    journal.write = lambda buffers: (calls.append("write"), write(buffers))[1]  # type: ignore[method-assign]
    journal.begin_sync = lambda: (calls.append("sync"), begin())[1]  # type: ignore[method-assign]
    lab.diff("t")
    assert calls == [], "nothing has gone yet"
    lab.clock.advance(TTL_MS + 1)
    lab.diff("t")
    assert calls == ["write", "sync"]
    lab.write("t", 4)
    lab.clock.advance(TTL_MS + 1)
    del calls[:]
    lab.diff("t")
    assert calls == [], "the mark reaches further than that"


def test_the_line_does_not_fall_because_the_last_that_aged_are_lost_as_well(lab: Lab) -> None:
    lab.clock.advance(TTL_MS + 1)
    lab.diff("t")  # from here on a mark covers the time
    lab.write("t", 4)
    synced = lab.engine.journal.position
    lab.write("t", 5)
    lab.clock.advance(TTL_MS + 1)
    assert gap(lab.diff("t", 3)) == (4, 5, "ttl")
    line = lab.topic("t").loss_line
    lose_power(lab, synced)
    for _ in range(2):
        assert lab.topic("t").loss_line >= line
        assert lab.topic("t").loss_line == lab.topic("t").floor == lab.topic("t").head + 1
        lab.restart()


def test_what_a_restart_lets_go_has_its_mark_too(lab: Lab) -> None:
    lab.clock.advance(TTL_MS + 1)
    # Only the page knows how late it is.
    lab.write("other", 1)
    lab.engine.queue.sync_journal()
    lab.kill()
    lab.open()
    assert gap(lab.diff("t")) == (1, 3, "ttl")
    lab.clock.advance(-TTL_MS - 1)
    lose_power(lab, synced=lab.engine.journal.position)
    assert ttl_line(lab) == 3


def test_a_snapshot_begins_a_new_mark(lab: Lab) -> None:
    """Marks in the journal below it are not read any more, so they cover nothing."""
    lab.clock.advance(TTL_MS + 1)
    lab.diff("t")
    lab.write("t", 4)
    lab.checkpoint()
    lab.clock.advance(TTL_MS + 1)
    assert gap(lab.diff("t")) == (1, 4, "ttl")
    lab.clock.advance(-TTL_MS - 1)
    lose_power(lab, synced=lab.engine.journal.position)
    assert ttl_line(lab) == 4


def test_marks_are_renewed_ahead_of_need_while_records_go(lab: Lab) -> None:
    engine = lab.engine
    engine.clock_mark.extend(engine.now())
    engine.queue.sync_now()
    assert marks(lab) == 0, "nothing has gone yet"
    lab.clock.advance(TTL_MS + 1)
    lab.diff("t")
    assert marks(lab) == 1
    engine.clock_mark.extend(engine.now())
    engine.queue.sync_now()
    assert marks(lab) == 1, "it lasts for a while"
    lab.clock.advance(AHEAD_MS - 500)
    engine.clock_mark.extend(engine.now())
    engine.queue.sync_now()
    assert marks(lab) == 2
    lab.clock.advance(10 * AHEAD_MS)
    engine.clock_mark.extend(engine.now())
    engine.queue.sync_now()
    assert marks(lab) == 2, "nothing has gone for long"


def test_a_disk_that_takes_no_mark_ends_writing_and_keeps_nothing_too_long(lab: Lab) -> None:

    def refuse(_: list[bytes]) -> None:
        raise OSError(errno.EIO, "Input/output error")

    lab.engine.journal.write = refuse  # type: ignore[method-assign]
    lab.clock.advance(TTL_MS + 1)
    assert lab.seqs("t") == []
    assert lab.engine.read_only
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")
