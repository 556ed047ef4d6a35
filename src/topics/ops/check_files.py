"""What has to be true of a data directory: every file, its columns and frames, and one against the other."""

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from topics.core import FIELDS
from topics.log import KIND_NAMES, RunState, SnapshotState, TopicState, decode, decode_import
from topics.storage import (
    DATA_KEY,
    DEAD,
    FILE_HEADER_BYTES,
    HEAD,
    I64,
    LIVE,
    LOCK,
    META_KEY,
    OWNER,
    PROOF,
    QUARANTINE,
    SUFFIX,
    TEMPORARY,
    U32,
    Columns,
    Damage,
    Directories,
    Filesystem,
    Frame,
    JournalReader,
    Kind,
    RunEntry,
    Segment,
    SegmentDamaged,
    Testimony,
    Witness,
    decode_file_header,
    journal,
    numbered_files,
    read_file,
    snapshot,
)
from topics.storage import witness as witness_file


def run_findings(segment: Segment, entry: RunEntry) -> Iterator[str]:
    """What is wrong with one run, in words that continue "its ...". Damage ends the search."""
    try:
        segment.verify(entry)
        columns = segment.columns(entry)
        yield from column_findings(columns)
        if columns.tags.codes is not None:
            yield from _tag_findings(segment, entry, columns.tags.codes, columns.tags.names)
    except SegmentDamaged as damage:
        yield str(damage).partition(": ")[2]


def column_findings(columns: Columns) -> Iterator[str]:
    ends = columns.ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    if not columns.count or len(ends) != columns.count:
        yield "there are not as many rows as records"
        return
    if int(ends[-1]) != len(columns.rows) or (lengths <= 0).any():
        yield "the rows do not end where they should"
        return
    if (np.diff(columns.ts) < 0).any():
        yield "times fall from one record to the next"
    for field, (codes, names) in zip(FIELDS, columns.names, strict=True):
        if codes is not None and int(codes.max()) > len(names):
            yield f"a record has a {field.name} that is not in the list of {field.name}s"
    yield from _row_findings(columns, ends, lengths)


def _row_findings(columns: Columns, ends: I64, lengths: I64) -> Iterator[str]:
    rows = np.frombuffer(columns.rows, np.uint8)
    if (rows[ends - 1] != ord("\n")).any() or (rows[ends - 2] != ord("}")).any():
        yield "a row is not closed"
    data_begins = columns.data_ends() - columns.data_lens
    if (data_begins - len(DATA_KEY) < ends - lengths).any():
        yield "a record is longer than its row"
        return
    if not _has_at(rows, data_begins - len(DATA_KEY), DATA_KEY):
        yield "data does not begin where it should"
    if columns.meta_lens is not None:
        with_meta = columns.meta_lens > 0
        if not _has_at(rows, columns.data_ends()[with_meta], META_KEY):
            yield "meta does not begin where it should"
    view = memoryview(columns.rows)
    for index, begin in enumerate((ends - lengths).tolist()):
        prefix = b"{" + HEAD % (columns.base + index, columns.ts[index])
        if view[begin : begin + len(prefix)] != prefix:
            yield f"the row of seq {columns.base + index} is another record's"
            return


def _has_at(rows: np.ndarray, begins: I64, text: bytes) -> bool:
    return all(bool((rows[begins + at] == letter).all()) for at, letter in enumerate(text))


def _tag_findings(segment: Segment, entry: RunEntry, codes: U32, tags: list[str]) -> Iterator[str]:
    """The postings say the same as the codes of the records."""
    if tags != sorted(set(tags), key=str.encode):
        yield "tags are not sorted"
        return
    order = np.argsort(codes, kind="stable")
    tagged = order[codes[order] > 0]
    counts = np.bincount(codes, minlength=len(tags) + 1)[1:]
    sizes = [len(segment.tagged(entry, code)) for code in range(1, len(tags) + 1)]
    if counts.tolist() != sizes or not np.array_equal(segment.tagged(entry, 1, len(tags)), tagged):
        yield "the lists of records by tag do not say what the records say"


PROBLEM, NOTE = "problem", "note"
_KINDS = frozenset(map(int, Kind))
# Frames that hand out seqs, and so tell in their header which.
_RECORDS = (Kind.APPEND, Kind.KEYED, Kind.ADVANCE, Kind.ROUTE, Kind.GROUP)


@dataclass(slots=True, frozen=True)
class Finding:
    """A note is what a server puts right by itself, or what was announced before."""

    severity: str
    file: str
    text: str


class DirectoryCheck:
    """One pass over the files. `progress` is told how many bytes were read."""

    def __init__(self, fs: Filesystem, dirs: Directories, progress: Callable[[int], None]) -> None:
        self._fs = fs
        self._dirs = dirs
        self._progress = progress
        self.states: dict[int, SnapshotState] = {}
        self.paths = dirs.segment_paths(fs)
        self._bases = numbered_files(fs, dirs.journal, journal.file_name)
        # Frames that adopt segments, as far as the journal was read.
        self._adoptions: list[Frame] = []
        self._names: dict[int, str] = {}
        # What every readable run says about itself: entry, and which records are marked deleted.
        self._runs: dict[tuple[int, int, int], tuple[RunEntry, np.ndarray, np.ndarray]] = {}

    def _finding(self, severity: str, path: str, text: str) -> Finding:
        return Finding(severity, os.path.relpath(path, self._dirs.root), text)

    def _problem(self, path: str, text: str) -> Finding:
        return self._finding(PROBLEM, path, text)

    def _note(self, path: str, text: str) -> Finding:
        return self._finding(NOTE, path, text)

    def _topic(self, topic_id: int) -> str:
        return self._names.get(topic_id, f"with id {topic_id}")

    def findings(self) -> Iterator[Finding]:
        yield from self._check_snapshots()
        yield from self._check_journal()
        yield from self._check_segments()
        yield from self._check_adoptions()
        for number, state in self.states.items():
            path = self._dirs.snapshot_path(number)
            yield from self._check_state(path, state)
        yield from self._check_strangers({decode_import(frame).segment for frame in self._adoptions})

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
        if not self.states and numbers:
            yield self._problem(self._dirs.snapshots, "no snapshot is intact")
        if not self.states and self._bases and self._bases[0] > 0:
            yield self._problem(
                self._dirs.snapshots,
                "there is none, and the journal does not reach back to the beginning: no server can start",
            )

    @property
    def _needed_from(self) -> int:
        """Where the journal begins that the intact snapshots need."""
        return min((state.replay_from for state in self.states.values()), default=0)

    # --- journal ----------------------------------------------------------------------------------------

    def _at(self, severity: str, position: int, text: str) -> Finding:
        base = max((base for base in self._bases if base <= position), default=self._bases[0])
        return self._finding(severity, self._dirs.journal_path(base), text)

    def _check_journal(self) -> Iterator[Finding]:
        yield from self._check_witness()
        witness = Witness(self._fs, self._dirs.root).previous
        if not self._bases:
            if witness.acked:
                text = f"holds no file, but had been acknowledged up to {witness.acked}"
                yield self._problem(self._dirs.journal, text)
            return
        yield from self._check_headers()
        if self._bases[0] > self._needed_from:
            text = f"begins at position {self._bases[0]}; the snapshots need it from {self._needed_from} on"
            yield self._problem(self._dirs.journal, text)
        yield from self._check_frames(witness)

    def _check_witness(self) -> Iterator[Finding]:
        path = self._dirs.witness
        if not self._fs.exists(path):
            text = "is missing; without it, a torn end of the journal is judged by the journal alone"
            yield self._note(path, text)
            return
        if not witness_file.is_intact(read_file(self._fs, path)):
            text = "is damaged: what the last process had promised is not known any more"
            yield self._problem(path, text)

    def _check_headers(self) -> Iterator[Finding]:
        for base in self._bases:
            with self._fs.open(self._dirs.journal_path(base)) as file:
                header = file.read(FILE_HEADER_BYTES, 0)
                self._progress(file.size())
            # One of zeros was written ahead, and no frame behind it was ever promised.
            if header.strip(b"\0") and decode_file_header(header) is None:
                text = "has a damaged header; its frames can still be read, thanks to the file's name"
                yield self._at(PROBLEM, base, text)

    def _check_frames(self, witness: Testimony) -> Iterator[Finding]:
        reader = JournalReader(self._fs, self._dirs.journal, start=self._bases[0], proven=witness.proven)
        end = reader.end
        for item in reader.frames():
            if isinstance(item, Damage):
                yield self._damage(item)
            elif item.kind == Kind.ADOPT:
                self._adoptions.append(item)
            elif item.kind not in _KINDS:
                text = f"has a frame of an unknown kind {item.kind} at position {item.position}"
                yield self._at(PROBLEM, item.position, text)
        if reader.cut is not None:
            text = (
                f"ends in {end - reader.cut} bytes that were being written when the process ended, "
                "and were never promised; the next start puts them aside"
            )
            yield self._at(NOTE, reader.cut, text)
        if witness.same_boot and witness.acked > reader.end:
            text = f"ends at position {reader.end}, but had been acknowledged up to {witness.acked}"
            yield self._at(PROBLEM, reader.end, text)

    def _damage(self, damage: Damage) -> Finding:
        text = f"is damaged from position {damage.position} to {damage.end}"
        header = damage.header
        if damage.end <= self._needed_from:
            return self._at(NOTE, damage.position, f"{text}, which no snapshot needs any more")
        if header is None:
            text += ": what it said is lost, and any topic may be affected"
        elif header.kind in _RECORDS and header.topic_id:
            last, topic = header.last_seq, self._topic(header.topic_id)
            text += (
                f": seqs {header.first_seq} to {last} of topic {topic} are lost from it, "
                "and announced unless a segment has them"
            )
        else:
            text += f": a change of kind {header.kind} is lost"
        return self._at(PROBLEM, damage.position, text)

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
        where = f"seqs {entry.base} to {last} of topic {self._topic(entry.topic_id)}"
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

    def _check_adoptions(self) -> Iterator[Finding]:
        """What no snapshot knows yet is where the journal says."""
        known_to = max((state.position for state in self.states.values()), default=0)
        for frame in self._adoptions:
            run = decode_import(frame)
            entry, _, _ = self._runs.get((run.segment, frame.topic_id, run.base), (None, None, None))
            is_there = entry is not None and (entry.count, entry.first_ts) == (run.count, run.ts)
            if frame.position >= known_to and not is_there:
                where = f"seqs {run.base} to {frame.last_seq} of topic {self._topic(frame.topic_id)}"
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
