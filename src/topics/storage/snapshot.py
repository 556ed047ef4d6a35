"""Snapshots: where recovery starts instead of at the beginning of time.

    <number>.snapshot:  magic 8 | format u32 | 0 u32 | length u64 | checksum u64 | MessagePack body

Written whole to a temporary file, synced, renamed, directory synced, and read back from the medium: a write
that went astray may have hit the snapshot before, so only what is really there may replace an older one. The
checksum covers header and body. The two newest are kept: a damaged one is passed over for the one before it,
whose journal and segments are still there.
"""

import errno
import os
from collections.abc import Iterator

from topics.storage import fileheader
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Filesystem, numbered_files, write_file_atomically

MAGIC = b"TOPICSSN"
SUFFIX = ".snapshot"
KEPT = 2


def file_name(number: int) -> str:
    return f"{number:016d}{SUFFIX}"


def encode(body: bytes) -> list[bytes]:
    return [fileheader.encode(MAGIC, len(body), body), body]


def decode(data: bytes) -> bytes | None:
    """The body, or None when the file is not an intact snapshot."""
    body = data[FILE_HEADER_BYTES:]
    return body if fileheader.decode(data, MAGIC, body) == len(body) else None


class SnapshotStore:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._numbers = numbered_files(fs, directory, file_name)
        self._damaged: set[int] = set()
        # How large each is.
        self._intact: dict[int, int] = {}
        # A backup copies these, so they stay.
        self.kept: frozenset[int] = frozenset()

    @property
    def newest_bytes(self) -> int:
        """Of the newest of which it is known that it is intact."""
        return self._intact[max(self._intact)] if self._intact else 0

    def newest_first(self) -> Iterator[bytes]:
        """Bodies of the intact snapshots; damaged ones are passed over."""
        for number in self._numbers[::-1]:
            body = self._read(number)
            if body is not None:
                yield body

    def newest(self) -> dict[int, bytes]:
        """Bodies of the snapshots that count, by number."""
        found: dict[int, bytes] = {}
        for number in self._numbers[::-1]:
            body = self._read(number) if len(found) < KEPT else None
            if body is not None:
                found[number] = body
        return found

    def look_over(self) -> None:
        """Read the one that recovery did not need: if it is damaged, there is nothing to fall back on."""
        for number in self._numbers[-KEPT:]:
            if number in self._intact:
                continue
            try:
                self._read(number)
            except OSError:
                self._damaged.add(number)

    @property
    def is_short(self) -> bool:
        """One is damaged and not replaced yet."""
        intact = [number for number in self._numbers if number not in self._damaged]
        return len(intact) < min(len(self._numbers), KEPT)

    def _read(self, number: int, *, from_disk: bool = False) -> bytes | None:
        with self._fs.open(os.path.join(self._directory, file_name(number))) as file:
            if from_disk:
                file.forget_cached()
            body = decode(file.read(file.size(), 0))
        if body is None:
            self._damaged.add(number)
        else:
            self._intact[number] = len(body)
        return body

    def write(self, body: bytes) -> None:
        number = self._numbers[-1] + 1 if self._numbers else 1
        write_file_atomically(self._fs, self._directory, file_name(number), encode(body))
        self._numbers.append(number)
        if self._read(number, from_disk=True) is None:
            raise OSError(errno.EIO, f"snapshot {number} cannot be read back as it was written")
        # A damaged one must not push out the intact one we would need instead of it.
        kept = self.kept.union([number for number in self._numbers if number not in self._damaged][-KEPT:])
        for old in set(self._numbers).difference(kept):
            self._fs.remove(os.path.join(self._directory, file_name(old)))
        self._numbers = sorted(kept.intersection(self._numbers))
        self._damaged.intersection_update(self._numbers)
        self._intact = {known: size for known, size in self._intact.items() if known in kept}
