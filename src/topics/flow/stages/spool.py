"""Files in which parts of stages wait for their commit. They are not read before it.

    <stage>-<part>.part, or <owner>-<stage>-<part>.part for a key with prefixes:  content | checksum u64

Names come from clients, so file names are digests of them. The owner's comes first and is told apart from a
stage's by the number of digests, so that no name of a stage reaches into the files of another owner.
"""

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable
from secrets import token_hex

from xxhash import xxh3_64

from topics.core import ApiError
from topics.storage import TEMPORARY, File, Filesystem
from topics.storage.fileheader import checksum
from topics.storage.filesystem import Buffer

SUFFIX = ".part"
_CHECKSUM = struct.Struct("<Q")
# Written in one go; of a part that is smaller, all of it.
_PIECE_BYTES = 1024 * 1024


class PartMissing(Exception):
    """There is no such part (any more)."""


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def stage_key(owner: str, stage: str) -> str:
    """How the files of a stage begin. Keys without prefixes share one space, which is the oldest."""
    return f"{digest_of(owner)}-{digest_of(stage)}" if owner else digest_of(stage)


def part_path(directory: str, key: str, part: str) -> str:
    return os.path.join(directory, f"{key}-{digest_of(part)}{SUFFIX}")


def names_digest(paths: list[str], topic: str | None) -> int:
    """What a commit names: parts of a stage, in whatever order, and where rows go that have no topic."""
    lines = [topic or "", *sorted(map(os.path.basename, paths))]
    return checksum("\n".join(lines).encode())


class SpoolFile:
    """A part that is being written, piece by piece, with what Arrow expects of a file."""

    closed = False

    def __init__(self, file: File) -> None:
        self._file = file
        self._checksum = xxh3_64()
        self._pieces: list[memoryview] = []
        self._gathered = self._written = 0

    def write(self, content: Buffer) -> int:
        piece = memoryview(content)
        self._checksum.update(piece)
        self._pieces.append(piece)
        self._gathered += len(piece)
        if self._gathered >= _PIECE_BYTES:
            self.flush()
        return len(piece)

    def flush(self) -> None:
        self._written += self._file.write(self._pieces, self._written)
        self._pieces, self._gathered = [], 0

    def close(self) -> None:
        """Asked by Arrow when its stream is complete; the checksum is still to come."""

    def finish(self) -> None:
        self._pieces.append(memoryview(_CHECKSUM.pack(self._checksum.intdigest())))
        self.flush()


def write_spooled(fs: Filesystem, path: str, write: Callable[[SpoolFile], None]) -> None:
    """Whole or not there. Not synced: the commit writes the rows again, and checks them before that."""
    # A name of its own: two writers may send the same part at the same time.
    temporary = f"{path}.{token_hex(4)}{TEMPORARY}"
    file = fs.create(temporary)
    try:
        spool = SpoolFile(file)
        write(spool)
        spool.finish()
    except OSError:
        # A full disk stays full as long as the half-written file lies around.
        fs.remove(temporary)
        raise
    finally:
        file.close()
    # Not there any more: the stage was dropped in the meantime, and this part with it.
    with contextlib.suppress(FileNotFoundError):
        fs.rename(temporary, path)


def read_spooled(fs: Filesystem, path: str) -> memoryview:
    try:
        file = fs.open(path)
    except FileNotFoundError:
        # Nothing else counts as missing: of a repeat without its parts, only the names are compared.
        raise PartMissing from None
    try:
        whole = memoryview(file.read(file.size(), 0))
    finally:
        file.close()
    if not is_intact(whole):
        raise ApiError("internal", "a part was damaged on disk; send it again")
    return whole[: -_CHECKSUM.size]


def is_intact(whole: bytes | memoryview) -> bool:
    """Whether the content of a file is what was spooled."""
    return whole[-_CHECKSUM.size :] == _CHECKSUM.pack(checksum(whole[: -_CHECKSUM.size]))
