"""The segments in a cold directory: which of them this log wrote, and may therefore replace or remove.

People put files anywhere, so a segment that is moved here gets a mark of its log in its header. A segment
without a readable mark counts as this log's if the log refers to it: its header is damaged, or it was moved
here while the disk was too full to write whose directory this is.
"""

import os
from collections.abc import Callable

from topics.storage import fileheader, segment
from topics.storage.fileheader import FILE_HEADER_BYTES, ForeignFile
from topics.storage.filesystem import (
    TEMPORARY,
    Filesystem,
    numbered_files,
    write_file_atomically,
)
from topics.storage.identity import Identity, read_owner


class ColdFiles:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self._fs = fs
        self.directory = directory
        owner = read_owner(fs, directory)
        # Without an owner, as in tests of the engine alone, all of it is ours.
        self._is_owned = owner is not None
        self.mark = 0 if owner is None else Identity(owner.identity).mark
        # Segments to which the log referred when it was opened: no others without a mark can be its own.
        self.known: frozenset[int] = frozenset()
        # Numbers that cannot be brought here: something else has the name, or the file is damaged.
        self.refused: set[int] = set()

    def path(self, number: int) -> str:
        return os.path.join(self.directory, segment.file_name(number))

    def numbers(self) -> set[int]:
        """Of segments that can be this log's."""
        return set(numbered_files(self._fs, self.directory, segment.file_name))

    def put(self, number: int, content: bytes) -> bool:
        """A segment of ours, from now on here as well; False where that cannot be."""
        named = fileheader.decode(content, segment.MAGIC)
        if named is None or not self.has_room_for(number):
            self.refused.add(number)
            return False
        header = fileheader.encode(segment.MAGIC, named, mark=self.mark)
        rest = memoryview(content)[FILE_HEADER_BYTES:]
        write_file_atomically(self._fs, self.directory, segment.file_name(number), [header, rest])
        return True

    def has_room_for(self, number: int) -> bool:
        path = self.path(number)
        return not self._fs.exists(path) or self._is_ours(path, number)

    def remove(self, number: int) -> None:
        self._remove(self.path(number), number)

    def sweep(self, is_wanted: Callable[[int], bool]) -> list[int]:
        """Remove segments of ours that are not wanted or not complete; returns the numbers of the rest."""
        numbers = sorted(self.numbers())
        for number in numbers:
            if not is_wanted(number):
                self.remove(number)
        for number in numbered_files(self._fs, self.directory, _unfinished):
            self._remove(os.path.join(self.directory, _unfinished(number)), number)
        return [number for number in numbers if is_wanted(number)]

    def _remove(self, path: str, number: int) -> None:
        if self._is_ours(path, number):
            self._fs.remove(path)

    def _is_ours(self, path: str, number: int) -> bool:
        if not self._is_owned:
            return True
        if not self._fs.exists(path):
            return False
        with self._fs.open(path) as file:
            header = file.read(FILE_HEADER_BYTES, 0)
        try:
            is_intact = fileheader.decode(header, segment.MAGIC) is not None
        except ForeignFile:
            return False
        mark = fileheader.mark_of(header) if is_intact else 0
        if mark:
            return mark == self.mark
        # No mark, or none that can be read. A file that is not a segment is not ours, whatever its name.
        return header.startswith(segment.MAGIC) and number in self.known


def _unfinished(number: int) -> str:
    return segment.file_name(number) + TEMPORARY
