"""What has to be true of a data directory, file by file and one against the other."""

import os
from array import array
from collections.abc import Callable, Iterator

import numpy as np

from topics.log import KIND_NAMES, RunState, SnapshotState, TopicState, decode, decode_import
from topics.ops.check_columns import run_findings
from topics.ops.check_journal import NOTE, PROBLEM, Finding, JournalCheck
from topics.storage import (
    DEAD,
    LIVE,
    LOCK,
    OWNER,
    PROOF,
    QUARANTINE,
    SUFFIX,
    TEMPORARY,
    Directories,
    Filesystem,
    Frame,
    RunEntry,
    Segment,
    SegmentDamaged,
    journal,
    numbered_files,
    read_file,
    snapshot,
)


class DirectoryCheck:
    """One pass over the files. `progress` is told how many bytes were read."""

    def __init__(self, fs: Filesystem, dirs: Directories, progress: Callable[[int], None]) -> None:
        self._fs = fs
        self._dirs = dirs
        self._progress = progress
        self.states: dict[int, SnapshotState] = {}
        self.paths = dirs.segment_paths(fs)
        self._names: dict[int, str] = {}
        # What every readable run says about itself: entry, and which records are marked deleted.
        self._runs: dict[tuple[int, int, int], tuple[RunEntry, np.ndarray, np.ndarray]] = {}

    def _problem(self, path: str, text: str) -> Finding:
        return Finding(PROBLEM, os.path.relpath(path, self._dirs.root), text)

    def _note(self, path: str, text: str) -> Finding:
        return Finding(NOTE, os.path.relpath(path, self._dirs.root), text)

    def topic(self, topic_id: int) -> str:
        return self._names.get(topic_id, f"with id {topic_id}")

    def findings(self) -> Iterator[Finding]:
        yield from self._check_snapshots()
        checked = JournalCheck(self._fs, self._dirs, self.needed_from, self.topic, self._progress)
        yield from checked.findings()
        yield from self._check_segments()
        yield from self._check_adoptions(checked.adoptions)
        for number, state in self.states.items():
            path = self._dirs.snapshot_path(number)
            yield from self._check_state(path, state)
        yield from self._check_strangers({decode_import(frame).segment for frame in checked.adoptions})

    # --- snapshots --------------------------------------------------------------------------------------

    def _check_snapshots(self) -> Iterator[Finding]:
        numbers = numbered_files(self._fs, self._dirs.snapshots, snapshot.file_name)
        for number in numbers:
            path = self._dirs.snapshot_path(number)
            content = read_file(self._fs, path)
            self._progress(len(content))
            body = snapshot.decode(content)
            state = None if body is None else decode(body)
            if state is None:
                yield self._problem(
                    path, "is damaged; a server starts from the other snapshot, if that one is intact"
                )
            else:
                self.states[number] = state
                self._names.update({topic.id: topic.name for topic in state.topics})
        files = numbered_files(self._fs, self._dirs.journal, journal.file_name)
        if not self.states and numbers:
            yield self._problem(self._dirs.snapshots, "no snapshot is intact")
        if not self.states and files and files[0] > 0:
            yield self._problem(
                self._dirs.snapshots,
                "there is none, and the journal does not reach back to the beginning: no server can start",
            )

    @property
    def needed_from(self) -> int:
        """Where the journal begins that the intact snapshots need."""
        return min((state.replay_from for state in self.states.values()), default=0)

    # --- segments ---------------------------------------------------------------------------------------

    def _check_segments(self) -> Iterator[Finding]:
        for number, path in self.paths.items():
            try:
                segment = Segment(self._fs, path)
            except SegmentDamaged as damage:
                yield self._problem(
                    path, f"is damaged ({str(damage).partition(': ')[2]}); its records are lost"
                )
                continue
            except OSError as error:
                yield self._problem(path, f"cannot be read: {error.strerror}")
                continue
            with segment:
                if segment.number != number:
                    yield self._problem(path, f"has been renamed: it is segment {segment.number}")
                for entry in segment.entries:
                    yield from self._check_run(number, path, segment, entry)
                self._progress(segment.size)

    def _check_run(self, number: int, path: str, segment: Segment, entry: RunEntry) -> Iterator[Finding]:
        last = entry.base + entry.count - 1
        where = f"seqs {entry.base} to {last} of topic {self.topic(entry.topic_id)}"
        found = list(run_findings(segment, entry))
        for text in found:
            yield self._problem(path, f"{where} cannot be trusted: {text}")
        if found:
            return
        columns = segment.columns(entry)
        if (entry.first_ts, entry.last_ts) != (int(columns.ts[0]), int(columns.ts[-1])):
            yield self._problem(path, f"{where}: the range of times is not that of the records")
        flags = segment.flags(entry)
        odd = int(((flags != DEAD) & (flags != LIVE)).sum())
        if odd:
            lost = "if one of them was set, a server announces these records as lost"
            yield self._problem(path, f"{where}: {odd} delete flags are damaged; {lost}")
        self._runs[number, entry.topic_id, entry.base] = (entry, flags == DEAD, columns.sizes())

    def _check_adoptions(self, frames: list[Frame]) -> Iterator[Finding]:
        """What no snapshot knows yet is where the journal says."""
        known_to = max((state.position for state in self.states.values()), default=0)
        for frame in frames:
            run = decode_import(frame)
            entry, _, _ = self._runs.get((run.segment, frame.topic_id, run.base), (None, None, None))
            is_there = entry is not None and (entry.count, entry.first_ts) == (run.count, run.ts)
            if frame.position >= known_to and not is_there:
                where = f"seqs {run.base} to {frame.last_seq} of topic {self.topic(frame.topic_id)}"
                text = f"says that {where} are in segment {run.segment}, where they cannot be read"
                yield self._problem(self._dirs.journal, text)

    # --- state ------------------------------------------------------------------------------------------

    def _check_state(self, path: str, state: SnapshotState) -> Iterator[Finding]:
        if not state.replay_from <= state.position:
            yield self._problem(path, "needs journal from behind its own position")
        ids = [topic.id for topic in state.topics]
        if len(set(ids)) != len(ids) or (ids and max(ids) >= state.next_topic_id):
            yield self._problem(path, "gives a topic id twice")
        for topic in state.topics:
            for text in _topic_findings(topic):
                yield self._problem(path, f"topic {topic.name}: {text}")
            for run in topic.runs:
                if run.segment:
                    yield from self._check_reference(path, state, topic, run)

    def _check_reference(
        self, path: str, state: SnapshotState, topic: TopicState, run: RunState
    ) -> Iterator[Finding]:
        where = f"topic {topic.name}: seqs {run.base} to {run.base + run.count - 1}"
        if run.segment >= state.next_segment:
            yield self._problem(path, f"{where} are in segment {run.segment}, a number not given out yet")
        if run.segment not in self.paths:
            hint = "" if self._dirs.cold else "; if there is a cold directory, name it with --cold-dir"
            yield self._problem(path, f"{where} are in segment {run.segment}, which is missing{hint}")
            return
        known = self._runs.get((run.segment, topic.id, run.base))
        if known is None:
            yield self._problem(path, f"{where} cannot be read from segment {run.segment}")
            return
        entry, dead, sizes = known
        if (entry.count, entry.first_ts, entry.last_ts) != (run.count, run.first_ts, run.last_ts):
            yield self._problem(path, f"{where}: segment {run.segment} holds another run there")
            return
        marks = dead.copy()
        marks[np.frombuffer(run.unflipped, np.uint32)] = True
        alive = ~marks
        alive[: max(topic.floor - run.base, 0)] = False
        if int(marks.sum()) != run.dead_count:
            yield self._problem(
                path, f"{where}: {run.dead_count} are deleted, but {int(marks.sum())} are marked so"
            )
        if (int(alive.sum()), int(sizes[alive].sum())) != (run.live_count, run.live_bytes):
            yield self._problem(
                path, f"{where}: {run.live_count} records are counted as live, and {int(alive.sum())} are"
            )

    # --- strangers --------------------------------------------------------------------------------------

    def _check_strangers(self, adopted: set[int]) -> Iterator[Finding]:
        used = {run.segment for state in self.states.values() for t in state.topics for run in t.runs}
        for number, path in self.paths.items():
            if number not in used | adopted:
                yield self._note(path, "is not needed by any snapshot; a server removes it")
        for name in self._fs.list(self._dirs.root):
            path = os.path.join(self._dirs.root, name)
            if path not in self._dirs.entries:
                yield self._note(path, "is nothing of ours")
        known: dict[str, tuple[str, ...]] = {
            self._dirs.snapshots: (snapshot.SUFFIX,),
            self._dirs.segments: (SUFFIX,),
            self._dirs.journal: (journal.SUFFIX,),
        }
        if self._dirs.cold is not None:
            known[self._dirs.cold] = (SUFFIX, OWNER, LOCK)
        for directory, suffixes in known.items():
            for name in self._fs.list(directory):
                path = os.path.join(directory, name)
                if name.endswith(TEMPORARY):
                    yield self._note(path, "was not complete when the process ended, and is ignored")
                elif name == QUARANTINE:
                    for tail in self._fs.list(path):
                        yield self._note(
                            os.path.join(path, tail), "is a copy of what a crash had torn; nothing reads it"
                        )
                elif not name.endswith(suffixes) and name != PROOF:
                    yield self._note(path, "is not a file of ours")


# --- what a snapshot says about a topic, apart from any record ---------------------------------------------


def _topic_findings(topic: TopicState) -> Iterator[str]:
    """What cannot be, in sentences."""
    if not topic.seq_base <= topic.floor <= topic.head + 1:
        yield f"the floor {topic.floor} is not between {topic.seq_base} and {topic.head + 1}"
    for name in ("cap_hi", "ttl_hi", "trim_hi", "lost_hi"):
        if getattr(topic, name) > topic.head:
            yield f"the line {name} lies above the head"
    expected = 0
    for run in sorted(topic.runs, key=lambda run: run.base):
        if run.base < expected:
            yield f"the runs at {run.base} overlap"
        expected = run.base + run.count
    if expected > topic.head + 1:
        yield f"there are records above the head {topic.head}"
    yield from _account_findings(topic)


def _account_findings(topic: TopicState) -> Iterator[str]:
    """Every seq below the floor is accounted for, by the ledger or by a hole."""
    firsts, lasts = array("q", topic.ledger[0]), array("q", topic.ledger[1])
    if any(kind >= len(KIND_NAMES) for kind in topic.ledger[2]):
        yield "the ledger has a kind of loss that there is not"
    told = sorted([*zip(firsts, lasts, strict=True), *((hole[0], hole[1]) for hole in topic.holes)])
    expected = topic.seq_base
    for first, last in told:
        if first > expected and expected < topic.floor:
            yield f"nothing says what became of seqs {expected} to {min(first, topic.floor) - 1}"
        expected = max(expected, last + 1)
    if expected < topic.floor:
        yield f"nothing says what became of seqs {expected} to {topic.floor - 1}"
