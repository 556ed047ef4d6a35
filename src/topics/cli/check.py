"""`topics check`: verify every checksum and every rule of a data directory, and say what is wrong in words.

Nothing is changed, and no server may run on the directory. Exit code 0: clean. 1: there are problems, which
are what a server would announce as lost, or worse. Notes are what the next start puts right by itself.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topics.cli.offline import add_cold_dir, offline_settings, require_data_dir
from topics.cli.work import add_json, answering, counted, progress, show
from topics.keep.check import DirectoryCheck
from topics.keep.check_columns import column_findings
from topics.keep.check_journal import NOTE, PROBLEM, Finding
from topics.log.read.audit import missing_ranges
from topics.log.recover.recovery import RecoveryFailed
from topics.log.remove.ledger import KIND_NAMES
from topics.log.remove.removal import surviving_damage
from topics.log.topic import Topic
from topics.node.node import Node
from topics.storage.directories import Directories
from topics.storage.snapshot import file_name
from topics.storage.untouched import NO_LOCK, UntouchedDisk
from topics.values.clock import ManualClock, SystemClock
from topics.values.errors import ConfigError
from topics.values.settings import Settings

FOUND = 1


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("check", help="verify a data directory", description=__doc__)
    parser.add_argument("data_dir", metavar="DATA_DIR", help="a data directory without a running server")
    add_cold_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return answering(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    require_data_dir(arguments.data_dir)
    settings = offline_settings(arguments.data_dir, arguments.cold_dir)
    with progress(as_json=arguments.json) as steps, _quiet():
        steps.begin("reading", _size(settings))
        disk = UntouchedDisk()
        lock = disk.lock(Directories(settings.data_dir).lock)
        check = DirectoryCheck(disk, settings.data_dir, settings.cold_dir, steps.advance)
        opening = _Opening(settings)
        findings = [*check.findings(), *_parts(disk, settings.data_dir)]
        steps.begin("recovering")
        findings += opening.findings(sorted(check.states))
        disk.unlock(lock)
    problems = [finding for finding in findings if finding.severity == PROBLEM]
    result = {
        "clean": not problems,
        "topics": opening.topics,
        "records": opening.records,
        "segments": len(check.paths),
        "findings": [asdict(finding) for finding in findings],
    }
    show(result, _text(arguments.data_dir, result, findings), as_json=arguments.json)
    return FOUND if problems else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """What recovery would log is among the findings, in words that are clear without the rest of a log."""
    logger = logging.getLogger("topics")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _size(settings: Settings) -> int:
    directories = filter(None, (settings.data_dir, settings.cold_dir))
    return sum(path.stat().st_size for d in directories for path in Path(d).rglob("*") if path.is_file())


def _text(data_dir: str, result: dict[str, Any], findings: list[Finding]) -> str:
    lines = [f"{finding.severity}: {finding.file} {finding.text}" for finding in findings]
    topics, records = counted(result["topics"], "topic"), counted(result["records"], "record")
    problems = sum(finding.severity == PROBLEM for finding in findings)
    verdict = "clean" if not problems else f"{counted(problems, 'problem')} found"
    return "\n".join([*lines, f"{data_dir}: {verdict}; {topics} with {records}"])


class _LockedDisk(UntouchedDisk):
    """For a directory that is locked already; perhaps as if one of its files were not there."""

    def __init__(self, hidden: str = "") -> None:
        self._hidden = hidden

    def list(self, path: str) -> list[str]:
        return [name for name in super().list(path) if name != self._hidden]

    def lock(self, path: str) -> int:
        return NO_LOCK


class _Opening:
    """What a server would find when it starts here, from either snapshot."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # One moment for both openings: what expires in between would look like a difference.
        self._clock = ManualClock(SystemClock().now_ms())
        self.topics = self.records = 0

    def findings(self, snapshots: list[int]) -> Iterator[Finding]:
        newest = self._open(_LockedDisk(), self._account)
        if isinstance(newest, str):
            yield Finding(PROBLEM, ".", f"a server cannot start here: {newest}")
            return
        yield from newest["findings"]
        if len(snapshots) < 2:
            return
        older = self._open(_LockedDisk(file_name(snapshots[-1])), self._account)
        where = f"snapshots/{file_name(snapshots[0])}"
        if isinstance(older, str):
            yield Finding(PROBLEM, where, f"a server cannot start from this one: {older}")
            return
        for name in sorted({*newest["states"], *older["states"]}):
            if newest["states"].get(name) != older["states"].get(name):
                yield Finding(
                    PROBLEM, where, f"topic {name} is another one when a server starts from this one"
                )

    def _open(self, disk: UntouchedDisk, look: Callable[[Node], dict[str, Any]]) -> dict[str, Any] | str:
        try:
            node = Node(self._settings, disk, self._clock)
        except ConfigError as error:  # a cold directory that cannot be the right one
            return str(error)
        try:
            node.recover()
            return look(node)
        except RecoveryFailed as error:
            return str(error)
        except Exception as error:  # whatever it is: a server would end with it
            return f"{type(error).__name__}: {error}"
        finally:
            node.leave(clean=False)

    def _account(self, node: Node) -> dict[str, Any]:
        engine = node.engine
        announced = engine.damage_events
        findings: list[Finding] = []
        states: dict[str, tuple[Any, ...]] = {}
        for topic in engine.by_name.values():
            ranges = surviving_damage(topic, lambda: missing_ranges(topic))  # noqa: B023
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


def _parts(disk: UntouchedDisk, data_dir: str) -> Iterator[Finding]:
    """Rows that were staged and are not committed yet."""
    from topics.flow.stages.spool import SUFFIX, is_intact

    for path in sorted(Path(Directories(data_dir).stages).glob(f"*{SUFFIX}")):
        file = disk.open(str(path))
        content = file.read(file.size(), 0)
        file.close()
        if not is_intact(content):
            yield Finding(
                PROBLEM, f"stages/{path.name}", "is damaged; whoever staged it has to send it again"
            )
