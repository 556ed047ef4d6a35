"""Sealed runs that were read lately are kept ready, within a bound, and read the same when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.log.seal import read_cache as views


def sealed(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    for at in range(8):
        lab.write("t", *({"data": 4 * at + n, "tag": f"k{n}"} for n in range(4)))
    lab.checkpoint(everything=True)
    return lab


@pytest.mark.parametrize(("name", "bound"), [("MAX_RUNS", 2), ("MAX_BYTES", 1)])
def test_the_oldest_leave_and_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(views, "MIN_RUNS", 2)
    monkeypatch.setattr(views, name, bound)
    lab = sealed(tmp_path)
    assert lab.delete("t", match="k1") == 8
    left = lab.seqs("t")
    assert len(left) == 24
    store, runs = lab.engine.store, lab.topic("t").runs
    misses = store.cache_misses
    for run in runs:
        store.columns(run)
    # Only the last two have their deletions in memory; everybody else's are read again.
    assert [run.dead is not None for run in runs] == [False] * 6 + [True] * 2
    assert store.cache_misses - misses >= 6
    assert lab.seqs("t") == left
    lab.restart()
    assert lab.seqs("t") == left
    lab.kill()


def test_what_is_dropped_is_not_counted_any_more(tmp_path: Path) -> None:
    lab = sealed(tmp_path)
    lab.seqs("t")
    cached = lab.engine.store._views
    assert cached.bytes > 0
    lab.delete("t", match="*")
    assert cached.bytes == 0
    lab.kill()
