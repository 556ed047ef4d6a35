"""The disk that can only be looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topics.storage.filesystem import NO_LOCK, Filesystem, LockHeld, UntouchedDisk, write_file_atomically


def test_changes_go_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    disk = UntouchedDisk()
    file = disk.open(str(path))
    assert file.write([b"other", b"!"], 0) == 6
    file.truncate(0)
    file.sync()
    assert file.read(100, 0) == b"content"
    assert bytes(file.map()) == b"content"
    file.close()
    disk.remove(str(path))
    disk.rename(str(path), str(tmp_path / "moved"))
    disk.make_dirs(str(tmp_path / "new"))
    disk.remove_dir(str(tmp_path))
    write_file_atomically(disk, str(tmp_path), "made", [b"content"])
    made = disk.create(str(tmp_path / "created"))
    made.write([b"kept for its owner"], 0)
    assert made.read(4, 0) == b"kept"
    made.close()
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"content"


def test_a_page_is_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(b"abc")
    page = UntouchedDisk().shared_page(str(path), 8)
    assert bytes(page.view) == b"abc\0\0\0\0\0"
    page.view[0] = 9
    page.sync()
    page.close()
    assert path.read_bytes() == b"abc"
    assert bytes(UntouchedDisk().shared_page(str(tmp_path / "none"), 2).view) == b"\0\0"


def test_the_lock_is_a_real_one(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    disk = UntouchedDisk()
    assert disk.lock(path) == NO_LOCK
    disk.unlock(NO_LOCK)
    held = Filesystem().lock(path)
    with pytest.raises(LockHeld):
        disk.lock(path)
    os.close(held)
    mine = disk.lock(path)
    with pytest.raises(LockHeld):
        Filesystem().lock(path)
    disk.unlock(mine)
