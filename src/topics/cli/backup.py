"""`topics backup`: copy what a server has committed into a directory of backups, while it goes on.

Sealed segments are copied once and shared by all backups in the directory. The server is on this machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from topics.cli.backup_source import Source, running_server, stopped_server
from topics.cli.offline import add_where, offline_settings
from topics.cli.work import (
    Steps,
    UserMistake,
    add_json,
    amount,
    answering,
    client_for,
    counted,
    moment,
    progress,
    show,
)
from topics.keep.backup_directory import FORMAT, BackupDamaged, BackupStore, Copied, Manifest
from topics.storage import snapshot as snapshot_files
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.filesystem import Filesystem, LockHeld
from topics.storage.segment import Segment, SegmentDamaged
from topics.storage.untouched import UntouchedDisk

FOUND = 1
LOCK = ".backups.lock"


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("backup", help="copy a server's data while it runs", description=__doc__)
    parser.add_argument("directory", metavar="DEST", help="a directory of backups; made if it is missing")
    where = add_where(parser)
    where.add_argument("--list", action="store_true", help="show the backups in DEST")
    where.add_argument("--verify", action="store_true", help="read every backup in DEST and check it")
    where.add_argument("--prune", type=int, metavar="KEEP", help="remove all but the newest KEEP backups")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return answering(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    store = BackupStore(Filesystem(), arguments.directory)
    try:
        if arguments.list:
            return _list(store, as_json=arguments.json)
        if arguments.verify:
            return _verify(store, as_json=arguments.json)
        if arguments.prune is not None:
            _require_any(store)
        with _alone(store):
            if arguments.prune is not None:
                return _prune(store, arguments.prune, as_json=arguments.json)
            return _backup(store, arguments)
    except BackupDamaged as error:
        raise UserMistake(str(error)) from None


@contextmanager
def _alone(store: BackupStore) -> Iterator[None]:
    """Of those that write into a directory of backups."""
    store.fs.make_dirs(store.directory)
    try:
        lock = store.fs.lock(os.path.join(store.directory, LOCK))
    except LockHeld:
        raise UserMistake(f"another backup into {store.directory} is under way") from None
    try:
        yield
    finally:
        store.fs.unlock(lock)


# --- taking one -----------------------------------------------------------------------------------------


def _backup(store: BackupStore, arguments: argparse.Namespace) -> int:
    source: AbstractContextManager[Source]
    if arguments.data_dir is not None:
        source = stopped_server(offline_settings(arguments.data_dir, arguments.cold_dir))
    else:
        source = running_server(client_for(arguments.url))
    with progress(as_json=arguments.json) as steps, source as files:
        if Path(store.directory).resolve().is_relative_to(Path(files.data_dir).resolve()):
            raise UserMistake(f"{store.directory} lies inside the data directory {files.data_dir}")
        outcome = _Taking(store, files, steps).run()
    text = (
        f"backup {outcome['name']}: {counted(outcome['topics'], 'topic')}, {amount(outcome['bytes'])}, "
        f"of which {amount(outcome['copied_bytes'])} were new; complete up to {moment(outcome['to_ms'])}"
    )
    for path in outcome["damaged"]:
        text += f"\ndamaged or missing where it came from: {path}"
    show(outcome, text, as_json=arguments.json)
    return FOUND if outcome["damaged"] else 0


class _Taking:
    """One backup in the making."""

    def __init__(self, store: BackupStore, source: Source, steps: Steps) -> None:
        self._store = store
        self._source = source
        self._steps = steps
        self._disk = UntouchedDisk()
        self._copied_bytes = 0
        self._damaged: list[str] = []
        self._name = _new_name(store, source.now_ms)

    def run(self) -> dict[str, Any]:
        source, store = self._source, self._store
        known = store.known_segments()
        store.begin(self._name)
        files = [*self._copy_snapshots(), *self._copy_journal()]
        segments, flags = self._copy_segments(known)
        files.append(store.add_flags(self._name, flags))
        states = source.states()
        manifest = Manifest(
            FORMAT,
            self._name,
            int(time.time() * 1000),
            states[0].clock_ms if states else 0,
            source.now_ms,
            source.position,
            source.data_dir,
            source.topics,
            files,
            segments,
        )
        store.finish(manifest)
        return {
            "name": self._name,
            "topics": manifest.topics,
            "from_ms": manifest.from_ms,
            "to_ms": manifest.to_ms,
            "position": manifest.position,
            "segments": len(segments),
            "bytes": manifest.size,
            "copied_bytes": self._copied_bytes,
            "damaged": self._damaged,
        }

    def _moved(self, size: int) -> None:
        self._copied_bytes += size
        self._steps.advance(size)
        self._source.keep()

    def _copy_snapshots(self) -> list[Copied]:
        copied = []
        for number, path in self._source.snapshots.items():
            file = self._disk.open(path)
            name = f"snapshots/{snapshot_files.file_name(number)}"
            copied.append(self._store.add(self._name, name, file, file.size(), self._moved))
            file.close()
        return copied

    def _copy_journal(self) -> list[Copied]:
        self._steps.begin("journal")
        copied = []
        for at, (path, base) in enumerate(self._source.journal):
            following = [base for _, base in self._source.journal[at + 1 :]]
            size = FILE_HEADER_BYTES + min([self._source.position, *following]) - base
            file = self._disk.open(path)
            name = f"journal/{os.path.basename(path)}"
            copied.append(self._store.add(self._name, name, file, min(size, file.size()), self._moved))
            file.close()
        return copied

    def _copy_segments(self, known: dict[str, Copied]) -> tuple[dict[int, Copied], dict[int, Any]]:
        segments, flags = {}, {}
        present = {n: path for n, path in self._source.segments.items() if os.path.exists(path)}
        self._damaged += sorted(set(self._source.segments.values()).difference(present.values()))
        self._steps.begin("segments", sum(map(os.path.getsize, present.values())))
        for number, path in present.items():
            file = self._disk.open(path)
            try:
                segment: Segment | None = Segment(self._disk, path)
            except SegmentDamaged:
                segment = None
            taken = self._store.add_segment(number, file, segment, known, self._moved)
            if segment is not None:
                segment.close()
            file.close()
            segments[number] = taken.copied
            if taken.flags:
                flags[number] = taken.flags
            if taken.is_damaged:
                self._damaged.append(path)
            if not taken.is_new:
                self._steps.advance(taken.copied.size)
            self._source.keep()
        return segments, flags


def _new_name(store: BackupStore, now_ms: int) -> str:
    name = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    taken = set(store.names())
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 10_000))) if n not in taken)


# --- what is there --------------------------------------------------------------------------------------


def _list(store: BackupStore, *, as_json: bool) -> int:
    _require_any(store)
    listed: list[dict[str, Any]] = []
    for name in store.names():
        try:
            manifest = store.manifest(name)
        except BackupDamaged as error:
            listed.append({"name": name, "complete": False, "error": str(error)})
        else:
            listed.append({"name": name, "complete": manifest is not None} | _described(manifest))
    show({"backups": listed}, "\n".join(map(_line, listed)), as_json=as_json)
    return 0


def _line(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['name']}  unusable: {one['error']}"
    if not one["complete"]:
        return f"{one['name']}  incomplete: it was interrupted, and --prune removes it"
    begin = moment(one["from_ms"]) if one["from_ms"] else "the beginning"
    contents = f"{counted(one['topics'], 'topic')}  {amount(one['bytes'])}"
    return f"{one['name']}  {contents}  {begin} to {moment(one['to_ms'])}"


def _described(manifest: Manifest | None) -> dict[str, Any]:
    if manifest is None:
        return {}
    names = ("created_ms", "from_ms", "to_ms", "position", "topics", "data_dir")
    return {**{name: getattr(manifest, name) for name in names}, "bytes": manifest.size}


def _verify(store: BackupStore, *, as_json: bool) -> int:
    _require_any(store)
    findings: list[str] = []
    names = store.names()
    with progress(as_json=as_json) as steps:
        for name in names:
            steps.begin(f"verifying {name}")
            try:
                manifest = store.manifest(name)
            except BackupDamaged as error:
                findings.append(str(error))
                continue
            if manifest is None:
                findings.append(f"{name} is incomplete: it was interrupted")
            else:
                findings += store.verify(manifest, steps.advance)
    findings = list(dict.fromkeys(findings))
    text = "\n".join(findings) or f"{counted(len(names), 'backup')} verified"
    show({"backups": names, "findings": findings}, text, as_json=as_json)
    return FOUND if findings else 0


def _prune(store: BackupStore, keep: int, *, as_json: bool) -> int:
    if keep < 1:
        raise UserMistake("--prune needs the number of backups to keep, at least 1")
    complete = [manifest.name for manifest in store.manifests()]
    kept = complete[-keep:]
    removed = [name for name in store.names() if name not in kept]
    for name in removed:
        store.remove(name)
    freed = store.remove_unused_segments()
    text = f"removed {counted(len(removed), 'backup')} and {amount(freed)} of segments; {len(kept)} left"
    show({"removed": removed, "kept": kept, "segment_bytes": freed}, text, as_json=as_json)
    return 0


def _require_any(store: BackupStore) -> None:
    if not store.names():
        raise UserMistake(f"there are no backups in {store.directory}")
