"""Files of sealed records: few are open at a time, and a system short of something costs no record."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.log.harness import T0, Lab
from topics.core.clock import ManualClock
from topics.log.seal import segment_store
from topics.storage.filesystem import File

RUNS = 8


@pytest.fixture
def sealed(lab: Lab) -> Lab:
    """A file for each run of four."""
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
def test_what_readers_hold_is_given_up_before_a_read_fails(sealed: Lab, code: int) -> None:
    store, runs = sealed.engine.store, sealed.topic("t").runs
    for run in runs[:4]:
        store.columns(run)
    assert open_segments(sealed) == 8
    with refusing(sealed, code, times=1):
        store.columns(runs[4])
    assert open_segments(sealed) == 2
    assert sealed.seqs("t") == list(range(1, 4 * RUNS + 1))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
def test_a_file_that_cannot_be_opened_just_now_is_not_lost(sealed: Lab, code: int) -> None:
    with refusing(sealed, code), pytest.raises(OSError, match=os.strerror(code)):
        sealed.seqs("t")
    assert sealed.topic("t").totals.damage == 0
    assert sealed.seqs("t") == list(range(1, 4 * RUNS + 1))


def test_a_file_of_another_log_is_not_read_as_ours(sealed: Lab, tmp_path: Path) -> None:
    """Two logs in one cold directory wrote over each other: number, topic and first seq are the same."""
    other = Lab(tmp_path / "other", ManualClock(T0 + 5000))
    other.write("t", *({"data": "not ours", "tag": f"k{n}"} for n in range(4)))
    other.checkpoint(everything=True)
    sealed.kill()
    shutil.copy(other.segment_files()[0], sealed.segment_files()[0])
    other.kill()
    sealed.open()
    assert sealed.gaps("t") == [(1, 4, "cap")]
    assert sealed.seqs("t") == list(range(5, 4 * RUNS + 1))
    # Nor is anything in it found by its tag.
    assert sealed.delete("t", match="k1") == RUNS - 1


def test_readers_stay_within_their_descriptors(sealed: Lab) -> None:
    sealed.engine.store.use_descriptors(4)
    assert sealed.seqs("t") == list(range(1, 4 * RUNS + 1))
    assert sealed.delete("t", match="k1") == RUNS
    assert len(sealed.seqs("t")) == 3 * RUNS
    assert 0 < open_segments(sealed) <= 4
    sealed.engine.store.use_descriptors(0)
    assert len(sealed.seqs("t")) == 3 * RUNS
    assert open_segments(sealed) == 2


def test_flags_are_flipped_one_file_at_a_time(sealed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.delete("t", match="k1")
    sealed.engine.store.close()
    most, opened = 0, sealed.disk.open

    def open_(path: str) -> File:
        nonlocal most
        most = max(most, open_segments(sealed))
        return opened(path)

    with monkeypatch.context() as patch:
        patch.setattr(sealed.disk, "open", open_)
        sealed.checkpoint()
        sealed.checkpoint()
    assert not sealed.engine.store.unflipped
    assert most == 0
    sealed.restart()
    assert len(sealed.seqs("t")) == 3 * RUNS


# --- runs that were read lately -----------------------------------------------------------------------------


@pytest.fixture
def together(lab: Lab) -> Lab:
    """A file for all runs of four."""
    for at in range(RUNS):
        lab.write("t", *({"data": 4 * at + n, "tag": f"k{n}"} for n in range(4)))
    lab.checkpoint(everything=True)
    return lab


@pytest.mark.parametrize(("name", "bound"), [("MAX_RUNS", 2), ("MAX_BYTES", 1)])
def test_the_oldest_leave_and_come_back_as_they_were(
    together: Lab, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(segment_store, "MIN_RUNS", 2)
    monkeypatch.setattr(segment_store, name, bound)
    assert together.delete("t", match="k1") == 8
    left = together.seqs("t")
    assert len(left) == 24
    store, runs = together.engine.store, together.topic("t").runs
    misses = store.cache_misses
    for run in runs:
        store.columns(run)
    # Only the last two have their deletions in memory; those of the others are read again.
    assert [run.dead is not None for run in runs] == [False] * 6 + [True] * 2
    assert store.cache_misses - misses >= 6
    assert together.seqs("t") == left
    together.restart()
    assert together.seqs("t") == left


def test_as_many_runs_are_kept_ready_as_fit(sealed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    store, runs = sealed.engine.store, sealed.topic("t").runs[:3]

    def kept() -> int:
        store._views.clear()
        for run in runs:
            store.columns(run)
        return sum(store._views.find(run) is not None for run in runs)

    assert kept() == 3
    size = store._views.bytes
    for most_runs, most_bytes, fewest, expected in (
        (2, size, 1, 2),
        (3, size, 1, 3),
        (3, size - 1, 1, 2),
        (3, 0, 2, 2),
        (3, 0, 3, 3),
    ):
        monkeypatch.setattr(segment_store, "MAX_RUNS", most_runs)
        monkeypatch.setattr(segment_store, "MAX_BYTES", most_bytes)
        monkeypatch.setattr(segment_store, "MIN_RUNS", fewest)
        assert kept() == expected


def test_only_files_that_nobody_knows_are_orphans(sealed: Lab) -> None:
    store, files = sealed.engine.store, sealed.segment_files()
    last = int(files[-1].name.partition(".")[0])
    store.remove_orphans(last)
    assert sealed.segment_files() == files, "the journal has adopted the last one"
    orphan = Path(store.path(last + 1))
    shutil.copy(files[-1], orphan)
    store.remove_orphans(last + 2)
    assert orphan.exists(), "it had been given out"
    store.forget(last + 1)
    store.remove_orphans(last + 1)
    assert sealed.segment_files() == files
    assert len(sealed.seqs("t")) == 4 * RUNS


def test_files_of_the_cold_directory_are_removed_by_who_knows_whose_they_are(sealed: Lab) -> None:
    store, removed = sealed.engine.store, list[int]()
    store.cold_dir, store.cold_files = "/cold", SimpleNamespace(remove=removed.append)  # type: ignore[assignment]
    hot = sealed.segment_files()[0]
    store.remove(str(hot))
    assert (removed, hot.exists()) == ([], False)
    store.remove(f"/cold/{hot.name}")
    assert removed == [1]


def test_reads_of_the_cold_tier_are_counted(sealed: Lab) -> None:
    store, runs = sealed.engine.store, sealed.topic("t").runs[:3]
    assert runs[0].sealed is not None
    store.cold = {runs[0].sealed.segment}
    for run in runs:
        store.columns(run)
    assert store.cold_reads == 1
