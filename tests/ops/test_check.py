"""`topics check`: what a server leaves is clean, and every kind of damage is found and explained."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Outcome, topics
from tests.flow.routers.lab import RouterLab
from tests.flow.stages.lab import LargeLab
from tests.log.harness import Lab
from tests.storage.support import columns
from tests.support.damage import flip
from topics.core import NODE_AT, TAG_AT, NamedField
from topics.log.seal.snapshot_state import SnapshotState, decode, encode
from topics.storage import CodedNames, snapshot
from topics.storage.filesystem import Filesystem
from topics.storage.segment import Segment, SegmentWriter


def fingerprint(directory: Path) -> str:
    hasher = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        hasher.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return hasher.hexdigest()


def check(directory: Path, *arguments: object) -> Outcome:
    """The directory stays exactly as it is."""
    before = fingerprint(directory)
    outcome = topics("check", directory, "--json", *arguments)
    assert outcome.code in (0, 1), outcome.errors
    assert outcome.json["clean"] == (outcome.code == 0)
    assert fingerprint(directory) == before
    return outcome


def problems(directory: Path) -> list[str]:
    outcome = check(directory)
    assert outcome.code == 1, outcome.output
    return [f"{f['file']} {f['text']}" for f in outcome.json["findings"] if f["severity"] == "problem"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A directory with everything in it: two snapshots, segments, deletions in all places, journal."""
    monkeypatch.setattr(Filesystem, "boot_id", lambda _: b"boot-1")
    made = RouterLab(tmp_path / "data")
    made.put("capped", cap_records=5)
    made.route("r", "t", "copies")
    for number in range(10):
        made.write("t", {"data": number, "tag": f"k{number % 3}", "node": "n", "meta": {"m": number}})
        made.write("capped", number)
    made.background()
    made.checkpoint()
    made.delete("t", match="k1")
    made.checkpoint()
    made.checkpoint()
    made.delete("t", before=3)
    made.write("t", {"data": "last", "tag": "k2"})
    made.checkpoint()
    made.write("t", {"data": "in the journal"}, {"data": "too"})
    made.delete("t", match="k2")
    made.background()
    return made


def test_what_servers_leave_is_clean(lab: Lab) -> None:
    for stop in (lab.kill, lab.stop):
        count = lab.engine.totals.records
        stop()
        outcome = check(lab.directory)
        assert outcome.json["findings"] == []
        assert (outcome.json["topics"], outcome.json["records"]) == (3, count)
        assert "clean" in topics("check", lab.directory).output
        lab.open()


def test_segments_that_only_the_journal_knows(tmp_path: Path) -> None:
    lab = LargeLab(tmp_path / "data")
    lab.write("a", "before")
    lab.part("0", {"topic": ["a", "b"] * 5, "data": ["1"] * 10})
    lab.commit_stage("0")
    lab.stop()
    outcome = check(lab.directory)
    assert (outcome.json["findings"], outcome.json["records"]) == ([], 11)
    (imported,) = lab.segment_files()
    imported.unlink()
    found = problems(lab.directory)
    assert any("journal says that seqs 2 to 6 of topic" in text for text in found), found


def test_journal_that_was_written_ahead_is_clean(lab: Lab) -> None:
    lab.engine.write_ahead()
    lab.engine.rotate()
    lab.write("t", {"data": "behind it"})
    count = lab.engine.totals.records
    lab.kill()
    # Begun when the power went: its name is there, and nothing in it.
    base = lab.engine.journal.position
    (lab.directory / "journal" / f"{base:020d}.journal").write_bytes(bytes(5000))
    outcome = check(lab.directory)
    assert (outcome.json["findings"], outcome.json["records"]) == ([], count)


def test_a_server_that_was_killed_in_the_middle(lab: Lab) -> None:
    """What the next start puts right by itself is told, and is no problem."""
    lab.kill()
    with lab.journal_files()[-1].open("ab") as journal:
        journal.write(b"half a frame")
    (lab.directory / "segments" / "0000000000000077.segment.tmp").write_bytes(b"half a segment")
    writer = SegmentWriter(90)
    writer.add(1, columns(), None)
    writer.write(Filesystem(), str(lab.directory / "segments"), 90)
    (lab.directory / "journal" / "damaged").mkdir()
    (lab.directory / "journal" / "damaged" / "1.tail").write_bytes(b"torn")
    (lab.directory / "snapshots" / "notes.txt").write_text("mine")
    (lab.directory / "mine").mkdir()
    outcome = check(lab.directory)
    assert outcome.code == 0
    notes = " ".join(f"{f['file']} {f['text']}" for f in outcome.json["findings"])
    for part in (
        "never promised",
        "77.segment.tmp was not",
        "1.tail is a copy",
        "90.segment is not needed",
        "mine is nothing of ours",
        "notes.txt is not a file",
    ):
        assert part in notes


# --- damage ---------------------------------------------------------------------------------------------


def damaged(lab: Lab, damage: Callable[[], Any], *expected: str) -> None:
    lab.kill()
    damage()
    found = problems(lab.directory)
    for part in expected:
        assert any(part in text for text in found), found


def test_a_snapshot(lab: Lab) -> None:
    newest = lab.snapshot_files()[-1]
    damaged(lab, lambda: flip(newest, 60), f"snapshots/{newest.name} is damaged")


def test_every_column_of_a_segment(lab: Lab) -> None:
    path = next(p for p in lab.segment_files() if "tag_order" in _entry(p).columns)
    lab.kill()
    for name, place in _entry(path).columns.items():
        flip(path, place.offset)
        assert any(f"column {name}" in text for text in problems(lab.directory))
        flip(path, place.offset)
    assert check(lab.directory).code == 0


def _entry(path: Path) -> Any:
    segment = Segment(Filesystem(), str(path))
    segment.close()
    return max(segment.entries, key=lambda entry: len(entry.columns))


@pytest.mark.parametrize("value", [b"\xdd", b"\x55"])
def test_a_flag(lab: Lab, value: bytes) -> None:
    """One that was set by nobody, and one that is neither set nor clear."""
    path, entry = next(
        (p, e) for p in lab.segment_files() for e in Segment(Filesystem(), str(p)).entries if e.topic_id == 1
    )

    def damage() -> None:
        content = bytearray(path.read_bytes())
        content[entry.flags_at + entry.count - 1] = value[0]
        path.write_bytes(content)

    damaged(lab, damage, "are marked so" if value == b"\xdd" else "delete flags are damaged")


def test_ephemeral_records_are_not_missed(lab: Lab) -> None:
    lab.put("passing", durability="ephemeral", cap_records=3)
    lab.write("passing", *range(5))
    lab.checkpoint()
    lab.write("passing", *range(5))
    lab.stop()
    assert check(lab.directory).code == 0


def test_a_missing_segment(lab: Lab) -> None:
    path = lab.segment_files()[-1]
    damaged(lab, path.unlink, "which is missing; if there is a cold directory, name it with --cold-dir")


def test_a_segment_that_cannot_be_opened(lab: Lab) -> None:
    path = lab.segment_files()[-1]

    def damage() -> None:
        path.unlink()
        path.mkdir()

    damaged(lab, damage, f"segments/{path.name} cannot be read: ", "cannot be read from segment")


def test_segments_in_the_second_tier(lab: Lab, tmp_path: Path) -> None:
    lab.kill()
    (tmp_path / "cold").mkdir()
    moved = lab.segment_files()[0]
    shutil.move(moved, tmp_path / "cold" / moved.name)
    assert any("--cold-dir" in text for text in problems(lab.directory))
    assert check(lab.directory, "--cold-dir", tmp_path / "cold").code == 0


def test_a_cold_directory_that_cannot_be_the_right_one(lab: Lab, tmp_path: Path) -> None:
    lab.kill()
    cold, other = tmp_path / "cold", tmp_path / "other"
    for directory in (cold, other):
        directory.mkdir()
    moved = lab.segment_files()[0]
    shutil.move(moved, cold / moved.name)
    (lab.directory / ".topics.cold").write_text(f"{lab.directory}\n{cold}\n")
    outcome = check(lab.directory, "--cold-dir", other)
    assert outcome.code == 1
    texts = [finding["text"] for finding in outcome.json["findings"]]
    assert any("which is missing" in text for text in texts)
    assert any(f"a server cannot start here: segments of {lab.directory} lie in {cold}" in t for t in texts)


def test_the_payload_of_a_frame(lab: Lab) -> None:
    frame = next(f for f in lab.frames() if f.kind == 4 and f.first_seq == 12)
    path = f"journal/{frame.path.name}"
    damaged(
        lab, lambda: flip(frame.path, frame.payload_at + 9), f"{path} is damaged", "seqs 12 to 13 of topic t"
    )


def test_the_header_of_a_frame(lab: Lab) -> None:
    frame = next(f for f in lab.frames() if f.kind == 4 and f.first_seq == 12)
    damaged(lab, lambda: flip(frame.path, frame.offset + 20), "any topic may be affected", "announces them")


def test_a_journal_that_is_gone(lab: Lab) -> None:
    def damage() -> None:
        for path in lab.journal_files():
            path.unlink()
        (lab.directory / "journal" / f"{10**6:020d}.journal").write_bytes(b"")

    damaged(lab, damage, "begins at position 1000000", "a server cannot start here")


def test_an_end_that_is_gone(lab: Lab) -> None:
    path = lab.journal_files()[-1]
    damaged(lab, lambda: os.truncate(path, path.stat().st_size - 200), "had been acknowledged up to")


def test_the_witness(lab: Lab) -> None:
    damaged(lab, lambda: flip(lab.directory / "witness", 2), "witness is damaged")


def test_a_staged_part(lab: Lab) -> None:
    def damage() -> None:
        (lab.directory / "stages").mkdir()
        (lab.directory / "stages" / "a-b.part").write_bytes(b"rows and a checksum")

    damaged(lab, damage, "stages/a-b.part is damaged")


# --- mistakes that have good checksums ------------------------------------------------------------------


def rewritten(lab: Lab, change: Callable[[SnapshotState], None]) -> None:
    """The newest snapshot, written by somebody who is wrong."""
    path = lab.snapshot_files()[-1]
    body = snapshot.decode(path.read_bytes())
    assert body is not None
    state = decode(body)
    assert state is not None
    change(state)
    path.write_bytes(b"".join(snapshot.encode(encode(state))))


def of(state: SnapshotState, name: str) -> Any:
    return next(topic for topic in state.topics if topic.name == name)


@pytest.mark.parametrize(
    ("name", "field", "value", "expected"),
    [
        ("t", "floor", 99, "the floor 99 is not between"),
        ("t", "cap_hi", 99, "the line cap_hi lies above the head"),
        ("t", "head", 5, "there are records above the head 5"),
        ("capped", "ledger", (b"", b"", b""), "nothing says what became of seqs 1 to 5"),
        ("t", "holes", [(10, 11, 4, True)], "is another one when a server starts from this one"),
    ],
)
def test_a_topic_that_cannot_be(lab: Lab, name: str, field: str, value: Any, expected: str) -> None:
    def change(state: SnapshotState) -> None:
        setattr(of(state, name), field, value)

    damaged(lab, lambda: rewritten(lab, change), expected)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("live_count", 1, "1 records are counted as live"),
        ("dead_count", 3, "3 are deleted, but"),
        ("segment", 99, "a number not given out yet"),
        ("first_ts", 5, "holds another run there"),
    ],
)
def test_a_run_that_cannot_be(lab: Lab, field: str, value: int, expected: str) -> None:
    def change(state: SnapshotState) -> None:
        setattr(of(state, "copies").runs[0], field, value)

    damaged(lab, lambda: rewritten(lab, change), expected)


def test_runs_that_overlap(lab: Lab) -> None:
    def change(state: SnapshotState) -> None:
        topic = of(state, "copies")
        topic.runs = [topic.runs[0], *topic.runs]

    damaged(lab, lambda: rewritten(lab, change), "overlap")


@pytest.mark.parametrize(
    ("column", "change", "expected"),
    [
        (
            "rows",
            lambda rows: bytes(rows).replace(b'"$seq":1,', b'"$seq":7,'),
            "the row of seq 1 is another",
        ),
        ("rows", lambda rows: bytes(rows).replace(b"}\n", b"]\n"), "a row is not closed"),
        ("ends", lambda ends: ends + np.uint32(1), "the rows do not end where they should"),
        ("known_data_lens", lambda lens: lens + np.uint32(1), "data does not begin where it should"),
        ("known_data_lens", lambda lens: lens + np.uint32(900), "a record is longer than its row"),
        ("meta_lens", lambda lens: lens + np.uint32(1), "does not begin where it should"),
        ("ts", lambda ts: np.arange(len(ts), 0, -1), "times fall"),
        ("names", lambda names: _shifted(names, TAG_AT), "has a tag that is not in the list"),
        ("names", lambda names: _shifted(names, NODE_AT), "has a node that is not in the list"),
    ],
)
def test_a_segment_that_contradicts_itself(
    lab: Lab, column: str, change: Callable[[Any], Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(p for p in lab.segment_files() if _entry(p).base == 1 and "tags" in _entry(p).columns)
    lab.kill()
    segment = Segment(Filesystem(), str(path))
    writer = SegmentWriter(segment.number)
    # Without this, writing sorts the tags by codes that do not exist.
    monkeypatch.setattr(SegmentWriter, "_put_index", _put_index)
    for entry in segment.entries:
        run = segment.columns(entry)
        if getattr(run, column) is not None:
            setattr(run, column, change(getattr(run, column)))
        writer.add(entry.topic_id, run, None)
    writer.write(Filesystem(), str(path.parent), segment.number)
    assert any(expected in text for text in problems(lab.directory))


def _shifted(names: tuple[CodedNames, ...], at: int) -> tuple[CodedNames, ...]:
    """The same with codes that no name has, in one field."""
    codes, texts = names[at]
    wrong = CodedNames(None if codes is None else codes + np.uint32(50), texts)
    return (*names[:at], wrong, *names[at + 1 :])


def _put_index(
    self: SegmentWriter, field: NamedField, codes: np.ndarray, names: list[str], places: dict[str, Any]
) -> tuple[np.ndarray, list[str]]:
    places["tag_order"] = self._put(np.argsort(codes, kind="stable").astype(np.uint32).tobytes())
    places["tag_starts"] = self._put(np.zeros(len(names) + 1, np.uint32).tobytes())
    return codes, names


def test_lists_by_tag_that_are_wrong(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def unchanged(columns: Any) -> Any:
        return columns

    test_a_segment_that_contradicts_itself(
        lab, "names", unchanged, "the lists of records by tag do not say", monkeypatch
    )
