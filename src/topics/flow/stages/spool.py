"""Files in which parts of stages wait for their commit, and which stages are open.

    <stage>-<part>.part, or <owner>-<stage>-<part>.part for a key with prefixes:  content | checksum u64

Names come from clients, so file names are digests of them. The owner's comes first and is told apart from a
stage's by the number of digests, so that no name of a stage reaches into the files of another owner.
"""

import contextlib
import hashlib
import os
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex

from xxhash import xxh3_64

from topics.core import ApiError, limit_reached
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


# A stage of which nothing was heard for so long is given up.
IDLE_MS = 3_600_000
# Of an owner, over all of its stages: each is a file, and a name in memory.
MAX_PARTS = 100_000


@dataclass(slots=True)
class _Stage:
    owner: str
    heard: int
    files: set[str] = field(default_factory=set)


class OpenStages:
    """The open stages: their files, their owners, and when each was last used."""

    def __init__(self, fs: Filesystem, directory: str, now: Callable[[], int]) -> None:
        self._fs = fs
        self._directory = directory
        self._now = now
        self._stages: dict[str, _Stage] = {}
        # Files of each owner, by the digest that they begin with.
        self._count: Counter[str] = Counter()

    @property
    def stages(self) -> int:
        return len(self._stages)

    @property
    def parts(self) -> int:
        return self._count.total()

    def find_again(self) -> None:
        """What a former process has left counts as heard of now."""
        for name in self._fs.list(self._directory):
            self._note(name.rpartition("-")[0], name)

    def admit(self, owner: str, stage: str, part: str) -> str:
        """Where a part goes; refused when its owner has too many."""
        key = stage_key(owner, stage)
        path = part_path(self._directory, key, part)
        known = self._stages.get(key)
        is_new = known is None or os.path.basename(path) not in known.files
        if is_new and self._count[_owner_of(key)] >= MAX_PARTS:
            raise limit_reached("max_stage_parts", MAX_PARTS)
        self._note(key, os.path.basename(path))
        return path

    def arrived(self, path: str) -> None:
        """A part was written, or could not be."""
        name = os.path.basename(path)
        key = name.rpartition("-")[0]
        if self._fs.exists(path):
            self._note(key, name)
        else:
            self._forget(key, {name})

    def heard_of(self, owner: str, stage: str) -> None:
        known = self._stages.get(stage_key(owner, stage))
        if known is not None:
            known.heard = self._now()

    def paths(self, owner: str, stage: str, parts: list[str]) -> list[str]:
        key = stage_key(owner, stage)
        return [part_path(self._directory, key, part) for part in parts]

    def idle(self) -> list[str]:
        """Keys of the stages of which nothing was heard for long."""
        now = self._now()
        return [key for key, stage in self._stages.items() if now - stage.heard >= IDLE_MS]

    def spent(self, owner: str, stage: str, names: set[str]) -> None:
        """These files of a stage are about to be removed."""
        self._forget(stage_key(owner, stage), names)

    def close(self, keys: list[str]) -> None:
        """The files of these stages are about to be removed. One that still comes opens its stage again."""
        for key in keys:
            if key in self._stages:
                self._forget(key, self._stages[key].files)

    def files_of(self, keys: list[str]) -> list[str]:
        """On any thread: all that is there of these stages, half-written files included."""
        wanted = set(keys)
        names = self._fs.list(self._directory)
        return [os.path.join(self._directory, n) for n in names if n.rpartition("-")[0] in wanted]

    def _note(self, key: str, name: str) -> None:
        owner = _owner_of(key)
        stage = self._stages.setdefault(key, _Stage(owner, 0))
        stage.heard = self._now()
        if name not in stage.files:
            stage.files.add(name)
            self._count[owner] += 1

    def _forget(self, key: str, names: set[str]) -> None:
        stage = self._stages.get(key)
        if stage is None:
            return
        left = stage.files - names
        self._count[stage.owner] -= len(stage.files) - len(left)
        stage.files = left
        if not left:
            del self._stages[key]


def _owner_of(key: str) -> str:
    """Empty for keys without prefixes."""
    return key.rpartition("-")[0]
