"""The disk seam: whole writes whatever the kernel accepts at once, locks, and files that are there or not."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.support import FS
from tests.support.disk import FullDisk, NotedDisk
from topics.storage.filesystem import (
    IOV_MAX,
    PIECE_BYTES,
    File,
    Filesystem,
    LockHeld,
    in_pieces,
    numbered_files,
    replace_file,
    write_file_atomically,
)

Buffers = list[bytes]


@pytest.fixture
def file(tmp_path: Path):
    opened = FS.create(str(tmp_path / "file"))
    yield opened
    opened.close()


def test_write_places_buffers_one_after_another(file: File) -> None:
    assert file.write([b"one", bytearray(b"two"), memoryview(b"three")], 2) == 11
    assert file.read(100, 0) == b"\0\0onetwothree"
    assert file.size() == 13


def test_write_takes_more_buffers_than_the_kernel(file: File) -> None:
    buffers = [b"%05d" % i for i in range(2 * IOV_MAX + 7)]
    assert file.write(buffers, 3) == 5 * len(buffers)
    assert file.read(file.size(), 3) == b"".join(buffers)


@pytest.mark.parametrize("accepted", [1, 4, 5, 9])
def test_write_goes_on_after_a_short_vectored_write(
    file: File, monkeypatch: pytest.MonkeyPatch, accepted: int
) -> None:
    def short(fd: int, buffers: Buffers, position: int) -> int:
        return os.pwrite(fd, b"".join(buffers)[:accepted], position)

    monkeypatch.setattr(os, "pwritev", short)
    buffers = [b"abcd", b"efgh", b"ijkl"] * 600
    assert file.write(buffers, 0) == 4 * len(buffers)
    assert file.read(file.size(), 0) == b"".join(buffers)


def test_write_goes_on_after_a_short_write(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data[:3]), at))
    assert file.write([b"0123456789"], 1) == 10
    assert file.read(100, 1) == b"0123456789"


def test_read_goes_on_after_a_short_read(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    file.write([b"0123456789"], 0)
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 4), at))
    assert file.read(9, 1) == b"123456789"


def test_new_directories_are_synced_into_their_parents(tmp_path: Path) -> None:
    disk = NotedDisk()
    disk.make_dirs(str(tmp_path / "a" / "b"))
    assert disk.notes[-2:] == [("sync_dir", tmp_path.name), ("sync_dir", "a")]
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_that_is_there_may_not_be_synced_yet(tmp_path: Path) -> None:
    """Whoever made it was perhaps killed right behind it."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    disk = NotedDisk()
    disk.make_dirs(str(tmp_path / "a" / "b"))
    assert disk.notes == [("sync_dir", "a")]


# --- the lock -----------------------------------------------------------------------------------------------

HOLDER = """
import sys
from topics.storage.filesystem import Filesystem
Filesystem().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_is_held_by_another_process_until_it_dies(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockHeld, match="lock"):
            FS.lock(path)
        holder.kill()
        holder.wait()
    FS.unlock(FS.lock(path))


def test_a_disk_without_locks_is_not_called_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No locks available"):
        FS.lock(str(tmp_path / "lock"))
    assert len(os.listdir("/proc/self/fd")) == before


# --- whole files --------------------------------------------------------------------------------------------


def test_a_file_appears_whole_and_durable(tmp_path: Path) -> None:
    disk = NotedDisk()
    write_file_atomically(disk, str(tmp_path), "name", [b"con", b"tent"])
    assert (tmp_path / "name").read_bytes() == b"content"
    assert disk.notes == [
        ("create", "name.tmp"),
        ("write", "name.tmp"),
        ("sync", "name.tmp"),
        ("rename", "name"),
        ("sync_dir", tmp_path.name),
    ]


def test_a_large_file_is_written_in_pieces_and_lets_others_go_first(tmp_path: Path) -> None:
    disk = NotedDisk()
    sizes = [7, 3 * PIECE_BYTES + 1, 0, PIECE_BYTES - 1, 5, PIECE_BYTES]
    parts = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
    replace_file(disk, str(tmp_path / "name"), parts)
    assert (tmp_path / "name").read_bytes() == b"".join(parts)
    write, rest = ("write", "name.tmp"), ("give_way", "")
    assert disk.notes[1:-2] == [write, rest] * (sum(sizes) // PIECE_BYTES) + [write]


@pytest.mark.parametrize("count", [1, 2])
def test_whole_pieces_leave_no_empty_one(count: int) -> None:
    assert [[len(part) for part in piece] for piece in in_pieces([bytes(count * PIECE_BYTES)])] == [
        [PIECE_BYTES]
    ] * count
    assert list(in_pieces([])) == []


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b"before")
    with pytest.raises(OSError, match="No space"):
        replace_file(FullDisk(), str(tmp_path / "name"), [b"much too long"])
    assert FS.list(str(tmp_path)) == ["name"]
    assert (tmp_path / "name").read_bytes() == b"before"


def test_what_could_not_be_written_may_grow_while_the_error_is_known(tmp_path: Path) -> None:
    rows = bytearray(PIECE_BYTES + 1)
    with pytest.raises(OSError, match="No space") as known:
        replace_file(FullDisk(), str(tmp_path / "name"), [b"header", rows, b"footer"])
    rows += b"more"
    assert known.value.errno == errno.ENOSPC


def test_numbered_files_are_only_those_we_could_have_named(tmp_path: Path) -> None:
    ours = ["0010.x", "0002.x"]
    others = ["2.x", "0003.y", "0003.x.tmp", "x", "²².x", "٠٠٠٣.x", "-001.x", ".x", "00a1.x"]
    for name in ours + others:
        (tmp_path / name).touch()
    assert numbered_files(Filesystem(), str(tmp_path), lambda number: f"{number:04d}.x") == [2, 10]
