"""Reading a journal back: a tear is cut, damage inside is announced, and twice is the same as once."""

from pathlib import Path

import pytest

from tests.storage.support import FS, append, in_file, journal_files, new_journal, scan, seqs, sync
from tests.support.damage import flip
from tests.support.disk import NotedDisk
from topics.storage import journal_reader
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.frame import HEADER_BYTES, Frame, Kind, encode_header
from topics.storage.journal import Journal, file_name
from topics.storage.journal_reader import PROOF, QUARANTINE, Damage

FRAME = HEADER_BYTES + len(b"payload")


def write(
    directory: Path, count: int, *, synced_after: tuple[int, ...] = (), rotate_after: tuple[int, ...] = ()
):
    """Frames 1..count, each `FRAME` long; frame n starts at (n - 1) * FRAME."""
    journal = new_journal(directory)
    for seq in range(1, count + 1):
        append(journal, seq)
        if seq in synced_after:
            sync(journal)
        if seq in rotate_after:
            journal.rotate()
    journal.close()
    return journal.position


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in journal_files(directory)}


def quarantined(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / QUARANTINE).glob("*.tail"))]


# --- the good case ------------------------------------------------------------------------------------------


def test_frames_come_back_in_order_across_files(tmp_path: Path) -> None:
    end = write(tmp_path, 5, rotate_after=(2, 4))
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2, 3, 4, 5]
    assert reader.end == reader.size == end
    assert reader.cut is None
    assert [(f.base, f.end) for f in reader.files()] == [
        (0, 2 * FRAME),
        (2 * FRAME, 4 * FRAME),
        (4 * FRAME, 5 * FRAME),
    ]
    first = items[0]
    assert isinstance(first, Frame)
    assert (first.kind, first.topic_id, first.count, first.ts, bytes(first.payload)) == (
        Kind.APPEND,
        1,
        1,
        9,
        b"payload",
    )


def test_start_leaves_out_what_lies_before(tmp_path: Path) -> None:
    write(tmp_path, 5, rotate_after=(2,))
    assert seqs(scan(tmp_path, start=FRAME)[1]) == [2, 3, 4, 5]
    assert seqs(scan(tmp_path, start=2 * FRAME)[1]) == [3, 4, 5]
    assert seqs(scan(tmp_path, start=3 * FRAME)[1]) == [4, 5]
    assert seqs(scan(tmp_path, start=5 * FRAME)[1]) == []


# --- torn tails ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [1, 7, 8, FRAME - 1])
def test_a_torn_last_frame_is_cut_after_a_copy(tmp_path: Path, missing: int) -> None:
    write(tmp_path, 3, synced_after=(2,))
    (path,) = journal_files(tmp_path)
    tail = path.read_bytes()[in_file(2 * FRAME) : -missing]
    path.write_bytes(path.read_bytes()[:-missing])
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2]
    assert reader.cut == 2 * FRAME
    assert reader.end == 2 * FRAME
    assert reader.damaged_bytes == 0
    assert path.stat().st_size == in_file(2 * FRAME)
    assert quarantined(tmp_path) == [tail]


def test_without_proof_later_frames_fall_with_the_first_bad_one(tmp_path: Path) -> None:
    write(tmp_path, 6, synced_after=(2,), rotate_after=(4,))
    first, second = journal_files(tmp_path)
    flip(first, in_file(2 * FRAME) + HEADER_BYTES)
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2]
    assert not second.exists()
    assert reader.end == 2 * FRAME
    assert [(f.base, f.end) for f in reader.files()] == [(0, 2 * FRAME)]
    assert sorted(len(tail) for tail in quarantined(tmp_path)) == [2 * FRAME, 2 * FRAME]


def test_zeros_at_the_end_are_cut_without_a_copy(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (path,) = journal_files(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(5000))
    reader, items = scan(tmp_path)
    assert seqs(items) == [1]
    assert (reader.cut, reader.end) == (None, FRAME)
    assert not (tmp_path / QUARANTINE).exists()


def test_scanning_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, 6, synced_after=(1,), rotate_after=(2, 4))
    flip(journal_files(tmp_path)[1], in_file(FRAME))
    _, items = scan(tmp_path)
    before, copies = content(tmp_path), quarantined(tmp_path)
    reader, again = scan(tmp_path)
    assert seqs(items) == seqs(again) == [1, 2, 3]
    assert reader.cut is None
    assert content(tmp_path) == before
    assert quarantined(tmp_path) == copies
    assert len(copies) == 2


def test_later_files_are_gone_for_good_before_the_tear_is(tmp_path: Path) -> None:
    """Otherwise a power loss could leave a clean end with a file behind it that is not its continuation."""
    write(tmp_path, 6, rotate_after=(2, 4))
    flip(journal_files(tmp_path)[0], in_file(FRAME))
    disk = NotedDisk()
    scan(tmp_path, fs=disk)
    synced = ("sync_dir", tmp_path.name)
    changes = [note for note in disk.notes if note[0] in ("remove", "truncate") or note == synced]
    assert changes == [
        synced,  # the quarantine's own name, each time something is put there
        ("remove", file_name(2 * FRAME)),
        synced,
        ("remove", file_name(4 * FRAME)),
        synced,
        synced,
        ("truncate", file_name(0)),
    ]


def test_a_cut_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    write(tmp_path, 6, rotate_after=(2, 4))
    first, second, _ = journal_files(tmp_path)
    flip(first, in_file(FRAME))
    second.unlink()  # as if killed after removing it
    reader, items = scan(tmp_path)
    assert seqs(items) == [1]
    assert journal_files(tmp_path) == [first]
    assert reader.end == FRAME


# --- interior damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 5, 20, 60])
def test_a_rotten_header_is_interior_damage_when_a_later_frame_proves_it(tmp_path: Path, at: int) -> None:
    write(tmp_path, 5, synced_after=(2,))
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME) + at)
    before = content(tmp_path)
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, "damage", 3, 4, 5]
    assert items[1] == Damage(FRAME, 2 * FRAME, None)
    assert reader.cut is None
    assert reader.damaged_bytes == FRAME
    assert content(tmp_path) == before
    assert seqs(scan(tmp_path)[1]) == seqs(items)


def test_a_rotten_payload_still_says_what_it_took_along(tmp_path: Path) -> None:
    write(tmp_path, 4, synced_after=(3,))
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME) + HEADER_BYTES + 3)
    _, items = scan(tmp_path)
    assert seqs(items) == [1, "damage", 3, 4]
    damage = items[1]
    assert isinstance(damage, Damage)
    assert damage.header is not None
    assert (damage.header.topic_id, damage.header.first_seq, damage.header.count) == (1, 2, 1)


def test_neighbours_that_are_both_rotten_are_announced_one_by_one(tmp_path: Path) -> None:
    """The second one may belong to another topic, whose head only its own header tells."""
    write(tmp_path, 5, synced_after=(4,))
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME) + HEADER_BYTES)
    flip(path, in_file(2 * FRAME) + HEADER_BYTES)
    _, items = scan(tmp_path)
    found = [item.header.first_seq for item in items if isinstance(item, Damage) and item.header]
    assert found == [2, 3]
    assert seqs(items) == [1, "damage", "damage", 4, 5]


def test_proof_may_come_from_a_later_file(tmp_path: Path) -> None:
    write(tmp_path, 4, synced_after=(3,), rotate_after=(3,))
    first, _ = journal_files(tmp_path)
    flip(first, in_file(2 * FRAME) + HEADER_BYTES)
    assert seqs(scan(tmp_path)[1]) == [1, 2, "damage", 4]


def test_the_witness_is_proof_too(tmp_path: Path) -> None:
    end = write(tmp_path, 3)
    (path,) = journal_files(tmp_path)
    flip(path, in_file(2 * FRAME) + HEADER_BYTES)
    reader, items = scan(tmp_path, proven=end)
    assert seqs(items) == [1, 2, "damage"]
    assert reader.end == end
    assert reader.cut is None


def test_damage_up_to_the_end_of_a_file_and_on_in_the_next(tmp_path: Path) -> None:
    write(tmp_path, 4, synced_after=(3,), rotate_after=(2,))
    first, _ = journal_files(tmp_path)
    first.write_bytes(first.read_bytes()[: in_file(FRAME)] + b"\xaa" * FRAME)
    _, items = scan(tmp_path)
    assert seqs(items) == [1, "damage", 3, 4]
    assert items[1] == Damage(FRAME, 2 * FRAME, None)


def test_a_frame_cut_short_inside_the_journal(tmp_path: Path) -> None:
    """The address of what follows does not move: the missing bytes are part of the damage."""
    write(tmp_path, 4, synced_after=(3,), rotate_after=(2,))
    first, _ = journal_files(tmp_path)
    first.write_bytes(first.read_bytes()[:-2])
    _, items = scan(tmp_path)
    assert seqs(items) == [1, "damage", "damage", 3, 4]
    assert [(item.position, item.end) for item in items if isinstance(item, Damage)] == [
        (FRAME, 2 * FRAME - 2),
        (2 * FRAME - 2, 2 * FRAME),
    ]


def test_damage_that_is_proven_then_damage_that_is_not(tmp_path: Path) -> None:
    write(tmp_path, 6, synced_after=(3,))
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME))
    flip(path, in_file(4 * FRAME))
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, "damage", 3, 4]
    assert reader.cut == 4 * FRAME


def test_many_damaged_frames_take_one_look_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = new_journal(tmp_path)
    for seq in range(1, 401):
        append(journal, seq)
    sync(journal)
    append(journal, 401)
    journal.close()
    (path,) = journal_files(tmp_path)
    data = bytearray(path.read_bytes())
    for seq in range(1, 401, 2):
        data[in_file((seq - 1) * FRAME) + 30] ^= 1
    path.write_bytes(data)
    reads = 0
    read_frame = journal_reader.read_frame

    def counting(*args):
        nonlocal reads
        reads += 1
        return read_frame(*args)

    monkeypatch.setattr(journal_reader, "read_frame", counting)
    _, items = scan(tmp_path)
    assert seqs(items).count("damage") == 200
    assert reads < 3 * 401


def test_proof_outlives_the_cut_that_takes_it_along(tmp_path: Path) -> None:
    """Frame 2 is known to have been synced only because frame 4 says so, and frame 4 falls with frame 3."""
    write(tmp_path, 4, synced_after=(2,), rotate_after=(3,))
    first, _ = journal_files(tmp_path)
    flip(first, in_file(FRAME) + HEADER_BYTES)
    flip(first, in_file(2 * FRAME) + HEADER_BYTES)
    for _ in range(2):
        reader, items = scan(tmp_path)
        assert seqs(items) == [1, "damage"]
        assert reader.end == 2 * FRAME
    flip(tmp_path / PROOF, 20)
    assert seqs(scan(tmp_path)[1]) == [1]


# --- what only looks like a frame ---------------------------------------------------------------------------


def forged(synced: int) -> bytes:
    payload = b"never written by us"
    digest = journal_reader.checksum(payload)
    header = encode_header(Kind.DROP, 0, 1, 1, 666, 1, digest, len(payload), position=synced, synced=synced)
    return header + payload


def test_a_frame_inside_a_torn_payload_is_not_a_frame(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    append(journal, 2, b"x" * 10 + forged(FRAME + 1) + b"y" * 10)
    journal.close()
    (path,) = journal_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    reader, items = scan(tmp_path)
    assert seqs(items) == [1]
    assert reader.cut is not None


def test_a_frame_inside_a_rotten_payload_is_not_a_frame(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    append(journal, 2, b"x" * 10 + forged(0) + b"y" * 10)
    sync(journal)
    append(journal, 3)
    journal.close()
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME) + HEADER_BYTES)
    assert seqs(scan(tmp_path)[1]) == [1, "damage", 3]


def test_nobody_knows_of_a_sync_beyond_himself(tmp_path: Path) -> None:
    """Behind a torn header, bytes that look like a frame prove nothing with a boast."""
    journal = new_journal(tmp_path)
    append(journal, 1)
    append(journal, 2, b"x" * 10 + forged(2**63))
    journal.close()
    (path,) = journal_files(tmp_path)
    flip(path, in_file(FRAME))
    assert seqs(scan(tmp_path)[1]) == [1]


# --- file headers and missing files -------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_rotten_file_header_costs_nothing(tmp_path: Path, index: int) -> None:
    end = write(tmp_path, 6, rotate_after=(2, 4))
    flip(journal_files(tmp_path)[index], 17)
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2, 3, 4, 5, 6]
    assert [item.position for item in items] == [n * FRAME for n in range(6)]
    assert reader.end == end


@pytest.mark.parametrize("size", [0, 5, FILE_HEADER_BYTES])
def test_a_new_file_whose_header_never_reached_the_disk(tmp_path: Path, size: int) -> None:
    end = write(tmp_path, 2)
    (tmp_path / file_name(end)).write_bytes(bytes(size))
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2]
    assert reader.end == end
    journal = Journal(FS, str(tmp_path), reader.files(), reader.end)
    append(journal, 3)
    journal.close()
    assert seqs(scan(tmp_path)[1]) == [1, 2, 3]


def test_a_missing_file_is_damage_when_it_had_been_synced(tmp_path: Path) -> None:
    write(tmp_path, 6, synced_after=(4,), rotate_after=(2, 4))
    journal_files(tmp_path)[1].unlink()
    reader, items = scan(tmp_path)
    assert seqs(items) == [1, 2, "damage", 5, 6]
    assert items[2] == Damage(2 * FRAME, 4 * FRAME, None, may_adopt=True)
    assert reader.damaged_bytes == 2 * FRAME
    assert seqs(scan(tmp_path)[1]) == seqs(items)
