"""A disk that refuses: what was not committed gets an error and is never seen, and writing is over."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import Lab
from tests.support.appending import append
from tests.support.disk import QuickDisk
from topics.core.errors import ApiError
from topics.log import delete_records
from topics.log.lifecycle import drop_topic
from topics.storage.filesystem import Buffer, File


class FailingDisk(QuickDisk):
    """Changes of files that it creates may fail."""

    failing: str | None = None

    def open(self, path: str) -> File:
        return QuickDisk().open(path)

    def before(self, operation: str, path: Path, buffers: Sequence[Buffer] = (), position: int = 0) -> None:
        if operation == self.failing:
            raise OSError(errno.EIO, "the disk refuses")


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.kill()
    lab.disk = FailingDisk()
    lab.open()
    lab.put("t", durability="fsync", cap_records=5)
    lab.write("t", {"data": 1, "tag": "x"}, {"data": 2, "tag": "y"})
    return lab


def submit_all(lab: Lab, answers: list[Any], failures: list[ApiError]) -> None:
    engine, topic = lab.engine, lab.topic("t")
    body = b'{"records":[{"data":3,"tag":"x"},{"data":4}]}'
    calls: list[Callable[[], None]] = [
        lambda: append(engine, "t", body, answers.append, failures.append, key=b"k"),
        lambda: append(engine, "t", body, answers.append, failures.append, key=b"k"),
        lambda: delete_records(engine, topic, 2, None, answers.append, failures.append),
        lambda: append(engine, "new", body, answers.append, failures.append),
        lambda: drop_topic(engine, "t", False, answers.append, failures.append),
    ]
    for call in calls:
        call()


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_refused_commit_shows_nothing(lab: Lab, failing: str, caplog: pytest.LogCaptureFixture) -> None:
    before, batches = lab.state("t"), lab.engine.counters.batches
    assert isinstance(lab.disk, FailingDisk)
    lab.disk.failing = failing
    answers: list[Any] = []
    failures: list[ApiError] = []
    submit_all(lab, answers, failures)
    lab.engine.queue.sync_now()
    assert answers == []
    assert lab.engine.counters.batches - batches == (failing == "sync"), "what is not written is not counted"
    assert [failure.code for failure in failures] == ["internal"] * 5
    assert lab.state("t") == before
    assert lab.engine.find("new") is None
    assert lab.engine.totals.pending_bytes == 0
    lab.disk.failing = None
    with pytest.raises(ApiError, match="writes are off until restart"):
        lab.write("t", 3)
    assert lab.state("t") == before
    (told,) = [record for record in caplog.records if "writes are off" in record.getMessage()]
    assert (told.levelname, "the disk refuses" in told.getMessage()) == ("ERROR", True)


def test_what_was_refused_before_the_journal_is_gone_after_a_restart(lab: Lab) -> None:
    before = lab.state("t")
    assert isinstance(lab.disk, FailingDisk)
    lab.disk.failing = "write"
    submit_all(lab, [], [])
    lab.engine.queue.sync_now()
    lab.disk.failing = None
    lab.restart()
    assert lab.state("t") == before
    assert lab.write("t", {"data": 3, "tag": "x"}).first_seq == 3
    assert lab.delete("t", match="x") == 2


def test_a_recovery_whose_sync_fails_serves_readers_and_forgets_no_promise(lab: Lab) -> None:
    """The holes it found are not on disk: the next recovery has to find them again."""
    assert isinstance(lab.disk, FailingDisk)
    lab.put("d")
    lab.write("d", 1, 2)
    lab.kill()
    journal = lab.journal_files()[-1]
    os.truncate(journal, journal.stat().st_size - 1)
    lab.disk.failing = "sync"
    lab.open()
    assert lab.engine.read_only
    assert lab.gaps("d") == [(1, 256, "cap")]
    lab.kill()
    lab.journal_files()[-1].unlink()
    lab.disk.failing = None
    lab.open()
    assert not lab.engine.read_only
    assert lab.gaps("d") == [(1, 256, "cap")]
    assert lab.write("d", 3).first_seq == 257
