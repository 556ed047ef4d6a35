"""A directory of backups: segments are shared by all of them, the rest belongs to one.

    segments/<number>-<digest>.segment   sealed records, with every delete flag cleared
    <name>/manifest.json                 written last: a backup without it was never finished
    <name>/snapshots/ journal/ flags     what the server would start from, and the flags as they were
    <name>/identity                      of which log this is a backup

A segment only ever changes in its flags. Those are kept with each backup, so that the file itself is copied
once however many backups refer to it. Its digest is that of its footer, which has the checksums of all else.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import numpy as np
from xxhash import xxh3_64

from topics.core import UserMistake
from topics.ops.directory import Steps
from topics.storage import (
    DEAD,
    FORMAT,
    TEMPORARY,
    File,
    Filesystem,
    Identity,
    LockHeld,
    Segment,
    SegmentDamaged,
    identity,
    read_file,
    write_file_atomically,
)
from topics.storage.fileheader import checksum, explain_format

MANIFEST = "manifest.json"
FLAGS = "flags"
IDENTITY = "identity"
SEGMENTS = "segments"
LOCK = ".backups.lock"
CHUNK_BYTES = 1024 * 1024
# Told of every stretch of bytes that was read or written.
Progress = Callable[[int], None]


class BackupDamaged(UserMistake):
    """A backup is not what was written, or another version of the program wrote it."""


class Copied(msgspec.Struct, gc=False, frozen=True):
    """A file of a backup. `name` is relative to the backup, or to the segments of all."""

    name: str
    size: int
    checksum: str


class Manifest(msgspec.Struct, gc=False):
    format: int
    name: str
    created_ms: int
    # Any moment between these two can be restored exactly.
    from_ms: int
    to_ms: int
    # How far the journal goes: everything acknowledged before the backup began lies below.
    position: int
    data_dir: str
    topics: int
    files: list[Copied]
    segments: dict[int, Copied]
    # Over all the rest of the manifest.
    checksum: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in [*self.files, *self.segments.values()])


# Records of a segment that are marked deleted: topic id, base of the run, indexes; for runs that have any.
RunFlags = tuple[int, int, bytes]
_manifest = msgspec.json.Decoder(Manifest)
_flags = msgspec.msgpack.Decoder(dict[int, list[RunFlags]])


def _digest(manifest: Manifest) -> str:
    return f"{checksum(msgspec.json.encode(msgspec.structs.replace(manifest, checksum=''))):016x}"


@dataclass(slots=True)
class Taken:
    """A segment that is in the directory now, and the flags it has in the server's."""

    copied: Copied
    flags: list[RunFlags]
    is_damaged: bool
    is_new: bool


class BackupStore:
    def __init__(self, fs: Filesystem, directory: str) -> None:
        self.fs = fs
        self.directory = directory
        self.segments = os.path.join(directory, SEGMENTS)

    # --- looking ----------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Every backup that was begun, oldest first."""
        found = [name for name in self.fs.list(self.directory) if name != SEGMENTS]
        return [name for name in found if self.fs.exists(os.path.join(self.directory, name, "journal"))]

    def require_any(self) -> list[str]:
        """The same, where there has to be one."""
        names = self.names()
        if not names:
            raise UserMistake(f"there are no backups in {self.directory}")
        return names

    def manifest(self, name: str) -> Manifest | None:
        """Return None for a backup that was never finished; raises `BackupDamaged` for an unusable one."""
        path = os.path.join(self.directory, name, MANIFEST)
        if not self.fs.exists(path):
            return None
        try:
            manifest = _manifest.decode(read_file(self.fs, path))
        except (msgspec.DecodeError, ValueError) as error:
            raise BackupDamaged(f"{path} is damaged: {error}") from error
        if manifest.format != FORMAT:
            raise BackupDamaged(explain_format(f"the backup {os.path.dirname(path)}", manifest.format))
        if manifest.checksum != _digest(manifest):
            raise BackupDamaged(f"{path} is damaged: its checksum does not fit")
        return manifest

    def manifests(self) -> list[Manifest]:
        """The finished ones, oldest first."""
        found = (self.manifest(name) for name in self.names())
        return sorted((m for m in found if m is not None), key=lambda m: (m.to_ms, m.name))

    def known_segments(self) -> dict[str, Copied]:
        """What need not be copied again. A backup that cannot be read is no reason to take no others."""
        known = {}
        for name in self.names():
            with suppress(BackupDamaged):
                manifest = self.manifest(name)
                if manifest is not None:
                    known.update({file.name: file for file in manifest.segments.values()})
        return known

    def path(self, manifest: Manifest, file: Copied) -> str:
        return os.path.join(self.directory, manifest.name, file.name)

    def segment_path(self, file: Copied) -> str:
        return os.path.join(self.segments, file.name)

    def paths(self, manifest: Manifest) -> Iterable[tuple[str, Copied]]:
        for file in manifest.files:
            yield self.path(manifest, file), file
        for file in manifest.segments.values():
            yield self.segment_path(file), file

    def verify(self, manifest: Manifest, progress: Progress) -> list[str]:
        """What is wrong with the files of a backup, in sentences."""
        found = []
        for path, file in self.paths(manifest):
            if not self.fs.exists(path):
                found.append(f"{path} is missing")
                continue
            with self.fs.open(path) as opened:
                digest, size = _checksum(opened, progress)
            if size != file.size:
                found.append(f"{path} has {size} bytes instead of {file.size}")
            elif digest != file.checksum:
                found.append(f"{path} is damaged: its checksum does not fit")
        return found

    def flags(self, manifest: Manifest) -> dict[int, list[RunFlags]]:
        return _flags.decode(read_file(self.fs, os.path.join(self.directory, manifest.name, FLAGS)))

    def identity(self, manifest: Manifest) -> Identity | None:
        """Return the identity of the log that was backed up; None if that log had lost it."""
        if IDENTITY not in {file.name for file in manifest.files}:
            return None
        content = read_file(self.fs, os.path.join(self.directory, manifest.name, IDENTITY))
        return identity.decode(content, Identity)

    def verify_all(self, steps: Steps) -> list[str]:
        """What is wrong with any of the backups, each thing once."""
        findings: list[str] = []
        for name in self.names():
            steps.begin(f"verifying {name}")
            try:
                manifest = self.manifest(name)
            except BackupDamaged as error:
                findings.append(str(error))
                continue
            if manifest is None:
                findings.append(f"{name} is incomplete: it was interrupted")
            else:
                findings += self.verify(manifest, steps.advance)
        return list(dict.fromkeys(findings))

    # --- writing ----------------------------------------------------------------------------------------

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time writes into a directory of backups."""
        self.fs.make_dirs(self.directory)
        try:
            lock = self.fs.lock(os.path.join(self.directory, LOCK))
        except LockHeld:
            raise UserMistake(f"another backup into {self.directory} is under way") from None
        try:
            yield
        finally:
            self.fs.unlock(lock)

    def begin(self, name: str) -> None:
        for path in ("", SEGMENTS, name, f"{name}/snapshots", f"{name}/journal"):
            self.fs.make_dirs(os.path.join(self.directory, path))

    def add(self, name: str, relative: str, source: File, size: int, progress: Progress) -> Copied:
        """Copy the beginning of a file into the backup."""
        return self._copy(source, size, os.path.join(self.directory, name), relative, (), progress)

    def add_segment(
        self, number: int, source: File, segment: Segment | None, known: dict[str, Copied], progress: Progress
    ) -> Taken:
        """Copy a segment unless a finished backup has it already. Without `segment` it is unreadable."""
        flags = [] if segment is None else _dead(segment)
        digest = _checksum(source, lambda _: None)[0] if segment is None else segment.digest
        name = f"{number:016d}-{digest}.segment"
        if name in known and self._has(known[name]):
            return Taken(known[name], flags, segment is None, is_new=False)
        holes = [] if segment is None else [(e.flags_at, e.count) for e in segment.entries]
        is_damaged = segment is None or not _is_intact(segment)
        copied = self._copy(source, source.size(), self.segments, name, holes, progress)
        return Taken(copied, flags, is_damaged, is_new=True)

    def _has(self, copied: Copied) -> bool:
        """Whether a segment is there, and was not cut short meanwhile. Only `verify` reads it."""
        path = self.segment_path(copied)
        if not self.fs.exists(path):
            return False
        with self.fs.open(path) as file:
            return file.size() == copied.size

    def _copy(
        self,
        source: File,
        size: int,
        directory: str,
        name: str,
        holes: Iterable[tuple[int, int]],
        progress: Progress,
    ) -> Copied:
        """Chunk by chunk, with zeros in the holes; renamed when all of it is on disk."""
        path = os.path.join(directory, name)
        hasher = xxh3_64()
        with self.fs.create(path + TEMPORARY) as file:
            for at in range(0, size, CHUNK_BYTES):
                chunk = bytearray(source.read(min(CHUNK_BYTES, size - at), at))
                for begin, length in holes:
                    first, last = max(begin - at, 0), min(begin + length - at, len(chunk))
                    if first < last:
                        chunk[first:last] = bytes(last - first)
                hasher.update(chunk)
                file.write([chunk], at)
                progress(len(chunk))
            if file.size() != size:
                raise OSError(f"{source.path} became shorter while it was copied")
            file.sync()
        self.fs.rename(path + TEMPORARY, path)
        return Copied(name, size, f"{hasher.intdigest():016x}")

    def add_flags(self, name: str, flags: dict[int, list[RunFlags]]) -> Copied:
        return self._add_small(name, FLAGS, msgspec.msgpack.encode(flags))

    def add_identity(self, name: str, of: Identity) -> Copied:
        return self._add_small(name, IDENTITY, identity.encode(of))

    def _add_small(self, name: str, file: str, content: bytes) -> Copied:
        write_file_atomically(self.fs, os.path.join(self.directory, name), file, [content])
        return Copied(file, len(content), f"{checksum(content):016x}")

    def finish(self, manifest: Manifest) -> None:
        """The backup counts from here on."""
        base = os.path.join(self.directory, manifest.name)
        for directory in (self.segments, f"{base}/snapshots", f"{base}/journal", base):
            self.fs.sync_dir(directory)
        manifest.checksum = _digest(manifest)
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        write_file_atomically(self.fs, base, MANIFEST, [content])
        self.fs.sync_dir(self.directory)

    # --- removing ---------------------------------------------------------------------------------------

    def prune(self, keep: int) -> tuple[list[str], list[str], int]:
        """Remove all but the newest complete ones; returns what went and what stays, and the bytes freed."""
        kept = [manifest.name for manifest in self.manifests()][-keep:]
        removed = [name for name in self.names() if name not in kept]
        for name in removed:
            self.remove(name)
        return removed, kept, self.remove_unused_segments()

    def remove(self, name: str) -> None:
        """The manifest goes first: what is left of a backup no longer counts as one."""
        base = os.path.join(self.directory, name)
        self.fs.remove(os.path.join(base, MANIFEST))
        self.fs.sync_dir(base)
        # The journal last: as long as it is there, so is the backup, and the next attempt goes on with it.
        for inner in (f"{base}/snapshots", f"{base}/journal"):
            for file in self.fs.list(inner):
                self.fs.remove(os.path.join(inner, file))
        for file in self.fs.list(base):
            if file not in ("snapshots", "journal"):
                self.fs.remove(os.path.join(base, file))
        for inner in (f"{base}/snapshots", f"{base}/journal", base):
            self.fs.remove_dir(inner)

    def remove_unused_segments(self) -> int:
        """Segments that no finished backup refers to; returns the bytes that came back."""
        used = {file.name for manifest in self.manifests() for file in manifest.segments.values()}
        freed = 0
        for name in self.fs.list(self.segments):
            if name not in used:
                path = os.path.join(self.segments, name)
                with self.fs.open(path) as file:
                    freed += file.size()
                self.fs.remove(path)
        return freed


def _checksum(file: File, progress: Progress) -> tuple[str, int]:
    hasher, at = xxh3_64(), 0
    while chunk := file.read(CHUNK_BYTES, at):
        hasher.update(chunk)
        at += len(chunk)
        progress(len(chunk))
    return f"{hasher.intdigest():016x}", at


def _dead(segment: Segment) -> list[RunFlags]:
    found = []
    for entry in segment.entries:
        indexes = np.flatnonzero(segment.flags(entry) == DEAD).astype(np.uint32)
        if len(indexes):
            found.append((entry.topic_id, entry.base, indexes.tobytes()))
    return found


def _is_intact(segment: Segment) -> bool:
    try:
        for entry in segment.entries:
            segment.verify(entry)
    except SegmentDamaged:
        return False
    return True
