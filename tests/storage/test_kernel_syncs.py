"""The kernel's own syncs, where it has them."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.storage.kernel_syncs import KernelSyncs


@pytest.fixture
def syncs() -> Iterator[KernelSyncs]:
    try:
        syncs = KernelSyncs()
    except OSError as error:
        pytest.skip(f"the kernel has none: {error}")
    yield syncs
    syncs.close()


def wait(syncs: KernelSyncs, told: list[BaseException | None], count: int) -> None:
    while len(told) < count:
        assert select.select([syncs.fileno()], [], [], 60)[0]
        syncs.finish()


def test_each_who_waits_is_told_once(syncs: KernelSyncs, tmp_path: Path) -> None:
    told: list[BaseException | None] = []
    with open(tmp_path / "file", "wb", buffering=0) as file:
        for number in range(1, 101):
            file.write(b"x")
            syncs.start(file.fileno(), told.append)
            if number % 10 == 0:
                wait(syncs, told, number)
    assert told == [None] * 100
    syncs.finish()
    assert len(told) == 100


def test_what_cannot_be_synced_is_told(syncs: KernelSyncs) -> None:
    """Whether the kernel says so at once or later."""
    told: list[BaseException | None] = []
    with pytest.raises(OSError, match="descriptor"):
        syncs.start(999_999, told.append)
    read, write = os.pipe()
    try:
        syncs.start(write, told.append)
        wait(syncs, told, 1)
    except OSError as error:
        told.append(error)
    finally:
        os.close(read)
        os.close(write)
    [error] = told
    assert isinstance(error, OSError)
    assert error.errno in (errno.EINVAL, errno.EROFS)


def test_a_signal_costs_nobody_an_answer(syncs: KernelSyncs, tmp_path: Path) -> None:
    """In the middle of every second call to the kernel."""
    call, times = syncs._syscall, itertools.count()

    def disturbed(*given: Any) -> int:
        if next(times) % 2 == 0:
            ctypes.set_errno(errno.EINTR)
            return -1
        return int(call(*given))

    syncs._syscall = disturbed
    told: list[BaseException | None] = []
    with open(tmp_path / "file", "wb", buffering=0) as file:
        for number in range(1, 6):
            file.write(b"x")
            syncs.start(file.fileno(), told.append)
            wait(syncs, told, number)
    assert told == [None] * 5


def test_nobody_is_told_behind_the_end(tmp_path: Path) -> None:
    syncs = KernelSyncs()
    told: list[BaseException | None] = []
    with open(tmp_path / "file", "wb", buffering=0) as file:
        file.write(b"x")
        syncs.start(file.fileno(), told.append)
        syncs.close()
    assert not told
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(syncs.fileno())


@pytest.mark.parametrize(("machine", "system"), [("of another kind", "linux"), ("x86_64", "darwin")])
def test_elsewhere_there_are_none(machine: str, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sys.platform", system)
    with pytest.raises(OSError, match="no asynchronous syncs"):
        KernelSyncs()
