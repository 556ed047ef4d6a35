"""Snapshots: two are kept, a damaged one is passed over."""

from pathlib import Path

import pytest

from tests.storage.support import FS
from tests.support.damage import flip
from topics.storage import fileheader
from topics.storage.filesystem import File
from topics.storage.snapshot import MAGIC, SnapshotStore, decode, encode, file_name


def store(directory: Path) -> SnapshotStore:
    return SnapshotStore(FS, str(directory))


def write(directory: Path, *bodies: bytes) -> None:
    kept = store(directory)
    for body in bodies:
        kept.write(body)


def test_every_byte_is_covered() -> None:
    data = b"".join(encode(b"body"))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert decode(bytes(damaged)) is None
    for size in range(len(data)):
        assert decode(data[:size]) is None
    assert decode(data + b"\0") is None


def test_a_length_that_lies_is_damage() -> None:
    assert decode(fileheader.encode(MAGIC, 3, b"body") + b"body") is None


def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two")
    flip(tmp_path / file_name(2), -1)
    assert list(store(tmp_path).newest_first()) == [b"one"]
    flip(tmp_path / file_name(1), 3)
    assert list(store(tmp_path).newest_first()) == []


def test_one_that_cannot_be_read_back_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store(tmp_path)
    kept.write(b"one")
    kept.write(b"two")
    with monkeypatch.context() as patch:
        # The page cache has it, and the medium has not.
        patch.setattr(File, "forget_cached", lambda file: flip(Path(file.path), -1))
        with pytest.raises(OSError, match="snapshot 3 cannot be read back"):
            kept.write(b"three")
    assert list(kept.newest_first()) == [b"two", b"one"]
    kept.write(b"four")
    assert FS.list(str(tmp_path)) == [file_name(2), file_name(4)]
    assert list(store(tmp_path).newest_first()) == [b"four", b"two"]


def test_a_damaged_one_does_not_push_out_an_intact_one(tmp_path: Path) -> None:
    write(tmp_path, b"one", b"two")
    flip(tmp_path / file_name(2), -1)
    found = store(tmp_path)
    assert next(found.newest_first()) == b"one"
    found.write(b"three")
    assert FS.list(str(tmp_path)) == [file_name(1), file_name(3)]
    assert list(store(tmp_path).newest_first()) == [b"three", b"one"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_one_is_missed_until_it_is_replaced(tmp_path: Path, number: int) -> None:
    first = store(tmp_path)
    for body in (b"one", b"two"):
        first.write(body)
        first.look_over()
        assert not first.is_short
    flip(tmp_path / file_name(number), -1)
    found = store(tmp_path)
    next(found.newest_first())
    found.look_over()
    assert found.is_short
    found.write(b"three")
    assert not found.is_short
    assert FS.list(str(tmp_path)) == [file_name(3 - number), file_name(3)]


def test_one_that_cannot_be_read_at_all_is_missed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, b"one", b"two")
    found = store(tmp_path)

    def refuse(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(File, "read", refuse)
    found.look_over()
    assert found.is_short


def test_how_large_the_newest_is(tmp_path: Path) -> None:
    """Looking over the older one does not change it; where the newest is damaged, it is the one before."""
    assert store(tmp_path).newest_bytes == 0
    written = store(tmp_path)
    for body in (b"one", b"a second", b"the third one"):
        written.write(body)
        assert written.newest_bytes == len(body)
    found = store(tmp_path)
    next(found.newest_first())
    found.look_over()
    assert found.newest_bytes == len(b"the third one")
    flip(tmp_path / file_name(3), -1)
    found = store(tmp_path)
    next(found.newest_first())
    assert found.newest_bytes == len(b"a second")
