"""Files of sealed records: few are open at a time, and a system short of something costs no record."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log.seal import segment_store
from topics.storage.filesystem import File
from topics.values.errors import ApiError

RUNS = 8


def sealed(tmp_path: Path) -> Lab:
    """A file for each run of four."""
    lab = Lab(tmp_path)
    for at in range(RUNS):
        lab.write("t", *({"data": 4 * at + n, "tag": f"k{n}"} for n in range(4)))
        lab.checkpoint(everything=True)
    return lab


def open_segments(lab: Lab) -> int:
    """Descriptors of this process that lead to one of its segments."""
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # the one of the listing itself
    return sum(target.startswith(f"{lab.directory}/segments/") for target in targets)


@contextmanager
def refusing(lab: Lab, code: int, *, times: int = 1000) -> Iterator[None]:
    """The disk opens nothing, so many times."""
    left = [OSError(code, os.strerror(code))] * times
    opened = lab.disk.open

    def open_(path: str) -> File:
        if left:
            raise left.pop()
        return opened(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.disk, "open", open_)
        yield


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_readers_hold_is_given_up_before_a_read_fails(tmp_path: Path, code: int) -> None:
    lab = sealed(tmp_path)
    store, runs = lab.engine.store, lab.topic("t").runs
    for run in runs[:4]:
        store.columns(run)
    assert open_segments(lab) == 8
    with refusing(lab, code, times=1):
        store.columns(runs[4])
    assert open_segments(lab) == 2
    assert lab.seqs("t") == list(range(1, 4 * RUNS + 1))
    lab.kill()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
def test_a_file_that_cannot_be_opened_just_now_is_not_lost(tmp_path: Path, code: int) -> None:
    lab = sealed(tmp_path)
    with refusing(lab, code), pytest.raises(OSError, match=os.strerror(code)):
        lab.seqs("t")
    assert lab.topic("t").totals.damage == 0
    assert lab.seqs("t") == list(range(1, 4 * RUNS + 1))
    lab.kill()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_file_that_may_only_be_read_is_read(tmp_path: Path, code: int) -> None:
    lab = sealed(tmp_path)
    with refusing(lab, code):
        assert lab.seqs("t") == list(range(1, 4 * RUNS + 1))
    lab.kill()


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_an_operation_that_cannot_look_into_a_file_is_answered_and_ends_writing(
    tmp_path: Path, durability: str
) -> None:
    lab = sealed(tmp_path)
    lab.put("t", durability=durability)
    latched = pytest.raises(ApiError, match="Too many open files; writes are off until restart")
    with refusing(lab, errno.EMFILE), latched:
        lab.delete("t", before=7)
    with pytest.raises(ApiError, match="writes are off"):
        lab.write("t", {"data": 0})
    lab.restart()
    # The journal had it already.
    assert lab.seqs("t") == list(range(7, 4 * RUNS + 1))
    assert lab.gaps("t") == []
    lab.kill()


def test_readers_stay_within_their_descriptors(tmp_path: Path) -> None:
    lab = sealed(tmp_path)
    lab.engine.store.use_descriptors(4)
    assert lab.seqs("t") == list(range(1, 4 * RUNS + 1))
    assert lab.delete("t", match="k1") == RUNS
    assert len(lab.seqs("t")) == 3 * RUNS
    assert 0 < open_segments(lab) <= 4
    lab.engine.store.use_descriptors(0)
    assert len(lab.seqs("t")) == 3 * RUNS
    assert open_segments(lab) == 2
    lab.kill()


def test_what_is_only_kept_to_read_faster_can_be_let_go(tmp_path: Path) -> None:
    lab = sealed(tmp_path)
    assert lab.delete("t", match="k1") == RUNS
    left = lab.seqs("t")
    assert open_segments(lab) == 2 * RUNS
    lab.engine.store.let_go()
    assert open_segments(lab) == 0
    assert lab.seqs("t") == left
    lab.kill()


def test_flags_are_flipped_one_file_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = sealed(tmp_path)
    lab.delete("t", match="k1")
    lab.engine.store.close()
    most, opened = 0, lab.disk.open

    def open_(path: str) -> File:
        nonlocal most
        most = max(most, open_segments(lab))
        return opened(path)

    with monkeypatch.context() as patch:
        patch.setattr(lab.disk, "open", open_)
        lab.checkpoint()
        lab.checkpoint()
    assert not lab.engine.store.unflipped
    assert most == 0
    lab.restart()
    assert len(lab.seqs("t")) == 3 * RUNS
    lab.kill()


# --- runs that were read lately -----------------------------------------------------------------------------


def sealed_together(tmp_path: Path) -> Lab:
    """A file for all runs of four."""
    lab = Lab(tmp_path)
    for at in range(RUNS):
        lab.write("t", *({"data": 4 * at + n, "tag": f"k{n}"} for n in range(4)))
    lab.checkpoint(everything=True)
    return lab


@pytest.mark.parametrize(("name", "bound"), [("MAX_RUNS", 2), ("MAX_BYTES", 1)])
def test_the_oldest_leave_and_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(segment_store, "MIN_RUNS", 2)
    monkeypatch.setattr(segment_store, name, bound)
    lab = sealed_together(tmp_path)
    assert lab.delete("t", match="k1") == 8
    left = lab.seqs("t")
    assert len(left) == 24
    store, runs = lab.engine.store, lab.topic("t").runs
    misses = store.cache_misses
    for run in runs:
        store.columns(run)
    # Only the last two have their deletions in memory; those of the others are read again.
    assert [run.dead is not None for run in runs] == [False] * 6 + [True] * 2
    assert store.cache_misses - misses >= 6
    assert lab.seqs("t") == left
    lab.restart()
    assert lab.seqs("t") == left
    lab.kill()


def test_what_is_dropped_is_not_counted_any_more(tmp_path: Path) -> None:
    lab = sealed_together(tmp_path)
    lab.seqs("t")
    cached = lab.engine.store._views
    assert cached.bytes > 0
    lab.delete("t", match="*")
    assert cached.bytes == 0
    lab.kill()
