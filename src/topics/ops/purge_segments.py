"""Purging segments: a file that holds anything of records that are gone is written again without it.

    begin (on the loop)  ─▶  examine, rewrite (any thread)  ─▶  adopt (on the loop)

The new file has a number of its own and takes over when a snapshot says so; the old one goes when no snapshot
refers to it any more. So a crash at any point leaves one of them in charge, never a mixture.
"""

import os
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from topics.log import Engine, Run, Topic, entry_of, lose_runs
from topics.storage import (
    DEAD,
    PLAIN,
    QUARANTINE,
    U8,
    U32,
    CodedNames,
    Columns,
    RunEntry,
    Segment,
    SegmentDamaged,
    SegmentWriter,
    sweep_segments,
    unfinished_files,
)

Mask: TypeAlias = NDArray[np.bool_]
_NULL = b"null"


def is_blank(columns: Columns, gone: Mask) -> bool:
    """True when nothing is left of the records in `gone`, nor a name that no record uses any more."""
    if gone.any():
        indexes = np.flatnonzero(gone)
        for codes in (columns.meta_lens, *(codes for codes, _ in columns.names)):
            if codes is not None and codes[indexes].any():
                return False
        if (columns.data_lens[indexes] != len(_NULL)).any():
            return False
        rows = np.frombuffer(columns.rows, np.uint8)
        begins = columns.data_ends()[indexes] - len(_NULL)
        if any((rows[begins + at] != letter).any() for at, letter in enumerate(_NULL)):
            return False
    return all(codes is None or len(_used(codes)) == len(known) for codes, known in columns.names)


def blanked(columns: Columns, gone: Mask) -> Columns:
    """The same run with blanks in the place of the records in `gone`."""
    rows, ends = _rows(columns, gone)
    data_lens = columns.data_lens.copy()
    data_lens[gone] = len(_NULL)
    hops = None if columns.hops is None else np.where(gone, 0, columns.hops).astype(np.uint8)
    return Columns(
        columns.base,
        columns.count,
        rows,
        ends,
        data_lens,
        columns.ts,
        meta_lens=_without(columns.meta_lens, gone),
        names=tuple(_recoded(codes, names, gone) for codes, names in columns.names),
        hops=hops,
    )


def _rows(columns: Columns, gone: Mask) -> tuple[bytes, U32]:
    """Whole stretches of what stays, and a short row for each record that does not."""
    lengths = np.diff(columns.ends.astype(np.int64), prepend=0)
    view = memoryview(columns.rows)
    edges = [0, *(np.flatnonzero(np.diff(gone)) + 1).tolist(), columns.count]
    parts: list[bytes | memoryview] = []
    for first, last in pairwise(edges):
        if not gone[first]:
            parts.append(view[columns.start_of(first) : columns.start_of(last)])
            continue
        for index, ts in enumerate(columns.ts[first:last].tolist(), first):
            row = PLAIN % (columns.base + index, ts, _NULL)
            parts.append(row)
            lengths[index] = len(row)
    return b"".join(parts), np.cumsum(lengths).astype(np.uint32)


def _without(column: U32 | None, gone: Mask) -> U32 | None:
    """Zero for those that are gone; no column at all when nothing else is left in it."""
    if column is None:
        return None
    kept = np.where(gone, np.uint32(0), column).astype(np.uint32)
    return kept if kept.any() else None


def _recoded(codes: U32 | None, names: list[str], gone: Mask) -> CodedNames:
    """Codes into a list that has only those names that are still in use."""
    kept = _without(codes, gone)
    if kept is None:
        return CodedNames(None, [])
    used = _used(kept)
    recode = np.zeros(len(names) + 1, np.uint32)
    recode[used] = np.arange(1, len(used) + 1, dtype=np.uint32)
    return CodedNames(recode[kept], [names[code - 1] for code in used.tolist()])


def _used(codes: U32) -> U32:
    found = np.unique(codes)
    return found[found > 0]


# A server may have a hundred thousand topics; looking at so many takes about a millisecond.
STEP_TOPICS = 500


@dataclass(slots=True)
class _Held:
    """A run in the file that still holds something live, as it was when the file's turn came."""

    topic: Topic
    run: Run
    unflipped: "array[int]" = field(default_factory=lambda: array("I"))
    floor: int = 0


@dataclass(slots=True)
class FilePlan:
    """One segment file, and what became of it."""

    number: int
    held: list[_Held]
    # Without a number the file is already as it should be.
    new_number: int = 0
    # Whether the new one lies in the cold directory.
    is_cold: bool = False
    damaged: list[_Held] = field(default_factory=list)
    written: list[_Held] = field(default_factory=list)
    records: int = 0
    old_bytes: int = 0
    new_bytes: int = 0


class SegmentPurge:
    """One purge of all files, or of those that hold something of the topics named.

    Whatever is left of topics that are gone altogether is always included.
    """

    def __init__(self, engine: Engine, topics: Collection[str] | None = None) -> None:
        self._engine = engine
        self._known = set(engine.by_id)
        self._wanted = {t.id for t in engine.by_id.values() if topics is None or t.name in topics}
        self.files: list[FilePlan] = []
        # Files without anything live: they need no plan, but they may be held.
        self._emptied: list[int] = []

    def plan_in_steps(self) -> Iterator[None]:
        """Find all files. Nothing else may seal or move files until this is over."""
        files: dict[int, FilePlan] = {}
        for at, topic in enumerate(list(self._engine.by_id.values()), 1):
            for run in topic.runs:
                if run.sealed is not None:
                    plan = files.setdefault(run.sealed.segment, FilePlan(run.sealed.segment, []))
                    plan.held.append(_Held(topic, run))
            if at % STEP_TOPICS == 0:
                yield
        self.files = list(files.values())
        self._emptied = [number for number, runs in self._engine.store.users.items() if not runs]

    @staticmethod
    def begin(file: FilePlan) -> None:
        """Fix what counts as gone. From here to `adopt` nothing else may seal, flip or move files."""
        file.held = [held for held in file.held if _is_in(held.run, file)]
        for held in file.held:
            assert held.run.sealed is not None
            held.unflipped, held.floor = held.run.sealed.unflipped[:], held.topic.floor

    # --- any thread -------------------------------------------------------------------------------------

    def examine(self, file: FilePlan) -> bool:
        """Whether there is anything in the file that has to go."""
        try:
            segment = self._engine.store.open_for_flips(file.number)
        except SegmentDamaged:
            return True
        with segment:
            ids = [entry.topic_id for entry in segment.entries]
            is_concerned = any(one in self._wanted or one not in self._known for one in ids)
            return is_concerned and not self._is_clean(segment, file)

    def _is_clean(self, segment: Segment, file: FilePlan) -> bool:
        owned = {(held.run.topic_id, held.run.base) for held in file.held}
        if any((entry.topic_id, entry.base) not in owned for entry in segment.entries):
            return False
        return all(_is_clean(segment, held) for held in file.held)

    def rewrite(self, file: FilePlan, number: int) -> None:
        """Write the file anew, under another number and in the same tier."""
        store, reserve = self._engine.store, self._engine.reserve
        file.written, file.damaged, file.records = [], [], 0
        try:
            segment = store.open_for_flips(file.number)
        except SegmentDamaged:
            file.damaged = file.held
            return
        with segment:
            directory, mark = self._place(file.number, number)
            self._engine.require_home(directory)
            writer = SegmentWriter(number, mark)
            for held in file.held:
                try:
                    file.records += _copy(segment, held, writer)
                    file.written.append(held)
                except SegmentDamaged:
                    file.damaged.append(held)
            kept = {(held.run.topic_id, held.run.base) for held in file.held}
            file.records += sum(e.count for e in segment.entries if (e.topic_id, e.base) not in kept)
            file.old_bytes = segment.size
        if writer.entries:
            file.new_number, file.new_bytes = number, writer.size
            file.is_cold = directory == store.cold_dir
            if file.is_cold:
                writer.write(store.fs, directory, number)
            else:
                write = partial(writer.write, store.fs, directory, number)
                reserve.helping(writer.size, write, keep=reserve.rest)
            store.fs.sync_dir(directory)

    def _place(self, old: int, number: int) -> tuple[str, int]:
        """Where the new file goes, and its mark: beside the old one, if there is room for its name."""
        store = self._engine.store
        if store.cold_files is None or old not in store.cold or not store.cold_files.has_room_for(number):
            return store.hot_dir, 0
        return store.cold_files.directory, store.cold_files.mark

    # --- on the loop again ------------------------------------------------------------------------------

    def adopt(self, file: FilePlan) -> None:
        """The new file answers for its runs from now on; what turned out to be unreadable is announced."""
        store = self._engine.store
        if file.written:
            store.note_file(file.new_number)
            if file.is_cold:
                store.cold.add(file.new_number)
        for held in file.written:
            run = held.run
            if not _is_in(run, file) or run.sealed is None:
                continue  # emptied meanwhile
            store.move(run, file.new_number, run.sealed.unflipped[len(held.unflipped) :])
            if run.hot is not None:
                # Memory has the old bytes.
                run.leave_memory()
        for held in file.damaged:
            if _is_in(held.run, file):
                lose_runs(held.topic, [held.run])

    def old_files(self) -> list[int]:
        """Files that are to go and are still there: those written anew, and those that hold nothing live."""
        users = self._engine.store.users
        done = [f.number for f in self.files if f.written or f.damaged or users.get(f.number) == 0]
        return [number for number in (*self._emptied, *done) if number in users]

    def sweep(self) -> None:
        """Any thread: remove copies to which nothing refers, and make all removals durable."""
        engine = self._engine
        store, fs, dirs = engine.store, engine.fs, engine.dirs
        for directory in filter(None, (store.hot_dir, store.cold_dir)):
            engine.require_home(directory)
        # Copies of what a crash had torn; half-written files; a file that a move between tiers left behind.
        quarantine = os.path.join(dirs.journal, QUARANTINE)
        for directory, names in (
            (quarantine, fs.list(quarantine)),
            (dirs.journal, unfinished_files(fs, dirs.journal)),
            (dirs.snapshots, unfinished_files(fs, dirs.snapshots)),
        ):
            for name in names:
                fs.remove(os.path.join(directory, name))
        sweep_segments(fs, store.hot_dir, lambda number: number in store.users and number not in store.cold)
        if store.cold_files is not None:
            store.cold_files.sweep(lambda number: number in store.cold)
        for changed in (quarantine, dirs.journal, dirs.snapshots, store.hot_dir, store.cold_dir):
            if changed is not None and fs.exists(changed):
                fs.sync_dir(changed)


def _is_in(run: Run, file: FilePlan) -> bool:
    return run.sealed is not None and run.sealed.segment == file.number


def _is_clean(segment: Segment, held: _Held) -> bool:
    if not held.run.dead_count and not held.unflipped and held.floor <= held.run.base:
        return True
    try:
        entry = entry_of(segment, held.run)
        segment.verify(entry)
        return is_blank(segment.columns(entry), _gone(segment, entry, held))
    except SegmentDamaged:
        return False


def _copy(segment: Segment, held: _Held, writer: SegmentWriter) -> int:
    """Returns how many records are blanks now that were not before."""
    entry = entry_of(segment, held.run)
    segment.verify(entry)
    columns = segment.columns(entry)
    gone = _gone(segment, entry, held)
    blanks = 0
    if not is_blank(columns, gone):
        columns, blanks = blanked(columns, gone), int(gone.sum())
    writer.add(entry.topic_id, columns, _marks(segment, entry, held))
    return blanks


def _marks(segment: Segment, entry: RunEntry, held: _Held) -> U8:
    marks: U8 = (segment.flags(entry) == DEAD).astype(np.uint8)
    if held.unflipped:
        marks[np.frombuffer(held.unflipped, np.uint32)] = 1
    return marks


def _gone(segment: Segment, entry: RunEntry, held: _Held) -> Mask:
    gone: Mask = _marks(segment, entry, held) != 0
    gone[: max(held.floor - entry.base, 0)] = True
    return gone
