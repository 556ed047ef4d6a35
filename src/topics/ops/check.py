"""Checking a data directory: its files one by one and against each other, then what a server makes of it.

check_files ─▶ check_journal, check_columns        every file, every checksum, every rule
            ─▶ a node on a disk that cannot change, from either snapshot

Nothing is changed. What the next start puts right by itself is a note; the rest is a problem.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topics.core import NS_PER_MS, ConfigError, ManualClock, Settings, SystemClock
from topics.flow.stages.spool import SUFFIX, is_intact
from topics.log import KIND_NAMES, Engine, RecoveryFailed, Topic, missing_ranges
from topics.ops.check_files import NOTE, PROBLEM, DirectoryCheck, Finding, column_findings
from topics.ops.directory import OpenNode, Steps, directories_of
from topics.storage import NO_LOCK, Directories, Hold, UntouchedDisk, read_file
from topics.storage.snapshot import file_name


@dataclass(slots=True)
class Checked:
    topics: int
    records: int
    segments: int
    findings: list[Finding]


def check(settings: Settings, open_node: OpenNode, steps: Steps) -> Checked:
    """No server may run on the directory meanwhile."""
    disk, dirs = UntouchedDisk(), directories_of(settings)
    holds = [Hold(disk, path) for path in (dirs.root, dirs.cold) if path is not None]
    try:
        steps.begin("reading", _size(dirs))
        files = DirectoryCheck(disk, dirs, steps.advance)
        findings = [*files.findings(), *_parts(disk, dirs)]
        steps.begin("recovering")
        opening = _Opening(settings, open_node)
        findings += opening.findings(sorted(files.states))
        return Checked(opening.topics, opening.records, len(files.paths), findings)
    finally:
        for hold in holds:
            hold.release()


def _size(dirs: Directories) -> int:
    paths = (path for root in filter(None, (dirs.root, dirs.cold)) for path in Path(root).rglob("*"))
    return sum(path.stat().st_size for path in paths if path.is_file())


class _LockedDisk(UntouchedDisk):
    """For a directory that is locked already; perhaps as if one of its files were not there."""

    def __init__(self, hidden: str = "") -> None:
        self._hidden = hidden

    def list(self, path: str) -> list[str]:
        return [name for name in super().list(path) if name != self._hidden]

    def lock(self, path: str) -> int:
        return NO_LOCK

    def lock_dir(self, path: str) -> int:
        return NO_LOCK


class _Opening:
    """What a server would find when it starts here, from either snapshot."""

    def __init__(self, settings: Settings, open_node: OpenNode) -> None:
        self._settings = settings
        self._open_node = open_node
        # One moment for both openings: what expires in between would look like a difference.
        self._clock = ManualClock(SystemClock.now_ns() // NS_PER_MS)
        self.topics = self.records = 0

    def findings(self, snapshots: list[int]) -> Iterator[Finding]:
        newest = self._open(_LockedDisk())
        if isinstance(newest, str):
            yield Finding(PROBLEM, ".", f"a server cannot start here: {newest}")
            return
        yield from newest["findings"]
        if len(snapshots) < 2:
            return
        older = self._open(_LockedDisk(file_name(snapshots[-1])))
        where = f"snapshots/{file_name(snapshots[0])}"
        if isinstance(older, str):
            yield Finding(PROBLEM, where, f"a server cannot start from this one: {older}")
            return
        for name in sorted({*newest["states"], *older["states"]}):
            if newest["states"].get(name) != older["states"].get(name):
                yield Finding(
                    PROBLEM, where, f"topic {name} is another one when a server starts from this one"
                )

    def _open(self, disk: UntouchedDisk) -> dict[str, Any] | str:
        """What is found, or why a server could not start."""
        try:
            node = self._open_node(self._settings, disk, self._clock)
        except ConfigError as error:  # a cold directory that cannot be the right one
            return str(error)
        try:
            node.recover()
            return self._account(node.engine)
        except RecoveryFailed as error:
            return str(error)
        except Exception as error:  # whatever it is: a server would end with it
            return f"{type(error).__name__}: {error}"
        finally:
            node.leave(clean=False)

    def _account(self, engine: Engine) -> dict[str, Any]:
        announced = engine.totals.damage
        findings: list[Finding] = []
        states: dict[str, tuple[Any, ...]] = {}
        for topic in engine.by_name.values():
            ranges = missing_ranges(topic)
            states[topic.name] = (
                topic.id,
                topic.head,
                topic.floor,
                topic.live_count,
                topic.live_bytes,
                ranges if topic.config.durability != "ephemeral" else _count(ranges),
            )
            findings += [*_lost(topic, ranges), *_unsealed(topic)]
        if announced:
            text = "a server that starts here finds records missing, and announces them as lost"
            findings.append(Finding(PROBLEM, ".", text))
        self.topics = len(states)
        self.records = sum(topic.live_count for topic in engine.by_name.values())
        return {"findings": findings, "states": states}


def _count(ranges: list[tuple[int, int, int]]) -> int:
    """How many are gone. What took ephemeral ones, only the snapshot knows that was made afterwards."""
    return sum(last - first + 1 for first, last, _ in ranges)


def _lost(topic: Topic, ranges: list[tuple[int, int, int]]) -> Iterator[Finding]:
    for first, last, kind in ranges:
        if KIND_NAMES[kind] == "lost":
            yield Finding(NOTE, ".", f"topic {topic.name}: seqs {first} to {last} are announced as lost")


def _unsealed(topic: Topic) -> Iterator[Finding]:
    """Records that only the journal has: their columns were made from it just now."""
    for run in topic.runs:
        if run.hot is not None and run.count:
            for text in column_findings(run.hot.view()):
                where = f"topic {topic.name}: seqs {run.base} to {run.last}"
                yield Finding(PROBLEM, "journal", f"has {where}, which cannot be trusted: {text}")


def _parts(disk: UntouchedDisk, dirs: Directories) -> Iterator[Finding]:
    """Rows that were staged and are not committed yet."""
    for name in disk.list(dirs.stages):
        if name.endswith(SUFFIX) and not is_intact(read_file(disk, os.path.join(dirs.stages, name))):
            text = "is damaged; the writer that staged it has to send it again"
            yield Finding(PROBLEM, f"stages/{name}", text)
