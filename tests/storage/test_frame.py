"""Frames: headers are read as they were written, for the position where they were written."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.storage.support import FS, append, in_file, journal_files, new_journal, scan, sync
from topics.core.errors import InvariantViolated
from topics.storage import frame as frame_module
from topics.storage.fileheader import checksum
from topics.storage.filesystem import File
from topics.storage.frame import (
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    SMALL_PAYLOAD_BYTES,
    Frame,
    FrameDraft,
    Header,
    Kind,
    Payload,
    decode_header,
    encode_header,
)
from topics.storage.journal import Journal

U64 = 2**64 - 1


def test_round_trip() -> None:
    data = encode_header(Kind.APPEND, 5, 3, 7, 100, 1234, checksum(b"payload"), 7, position=99, synced=99)
    assert len(data) == HEADER_BYTES == 64
    assert data.startswith(FRAME_MAGIC_BYTES)
    expected = Header(
        Kind.APPEND, 5, 3, 7, 100, 1234, 99, payload_checksum=checksum(b"payload"), payload_length=7
    )
    assert decode_header(data) == expected
    assert decode_header(memoryview(b"12345" + data), 5) == expected


def test_extremes_fit() -> None:
    limits = (255, 255, 2**32 - 1, U64, U64, U64, U64, 2**32 - 1)
    header = decode_header(encode_header(*limits, position=U64, synced=U64))
    assert header == Header(
        255, 255, 2**32 - 1, U64, U64, U64, U64, payload_checksum=U64, payload_length=2**32 - 1
    )


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_every_byte_is_covered(at: int) -> None:
    data = bytearray(encode_header(Kind.DELETE, 0, 1, 2, 3, 4, 6, 7, position=5, synced=5))
    data[at] ^= 0x10
    assert decode_header(bytes(data)) is None


def test_cut_short() -> None:
    data = encode_header(Kind.DELETE, 0, 1, 2, 3, 4, 6, 7, position=5, synced=5)
    assert decode_header(data[:-1]) is None
    assert decode_header(data, 1) is None
    assert decode_header(b"") is None


def test_a_header_may_not_claim_that_its_own_frame_is_synced() -> None:
    encode_header(Kind.CLOCK, 0, 0, 0, 0, 0, 0, 0, position=64, synced=64)
    with pytest.raises(InvariantViolated, match="a frame at 64 cannot claim that 65 bytes are synced"):
        encode_header(Kind.CLOCK, 0, 0, 0, 0, 0, 0, 0, position=64, synced=65)


def test_frame_knows_its_ends() -> None:
    frame = Frame(Kind.APPEND, 0, 3, 1, 50, 0, 0, position=1000, payload=memoryview(b"12345"))
    assert frame.end == 1000 + HEADER_BYTES + 5
    assert frame.last_seq == 52


def test_numbers_of_kinds_never_change() -> None:
    """They are on disk. A new kind gets a new number; a retired one keeps its own."""
    known = {
        "CREATE": 1,
        "CONFIG": 2,
        "DROP": 3,
        "APPEND": 4,
        "ADVANCE": 5,
        "DELETE": 6,
        "RESERVE": 7,
        "HOLE": 8,
        "CLOCK": 9,
        "HEADS": 10,
        "ROUTER_PUT": 11,
        "ROUTER_DROP": 12,
        "ROUTE": 13,
        "LEASE": 14,
        "CURSOR": 15,
        "DEAD_LETTER": 17,
        "LINES": 18,
    }
    assert known.items() <= {kind.name: kind.value for kind in Kind}.items()


# --- drafts ------------------------------------------------------------------------------------------------


class Noted(NamedTuple):
    """What the journal asked for when it built a header."""

    kind: int
    position: int
    synced: int


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    """Every header that is built, in order. The position is not in the bytes, so it is noted here."""
    built: list[Noted] = []
    encode = frame_module.encode_header

    def noting(kind: int, *fields: int, position: int, synced: int) -> bytes:
        built.append(Noted(kind, position, synced))
        return encode(kind, *fields, position=position, synced=synced)

    monkeypatch.setattr(frame_module, "encode_header", noting)
    return built


def positions_on_disk(directory: Path) -> list[int]:
    _, items = scan(directory)
    assert all(isinstance(item, Frame) for item in items)
    return [item.position for item in items]


PAYLOADS: list[Payload] = [
    b"",
    b"x",
    b"x" * (SMALL_PAYLOAD_BYTES - 1),
    b"x" * SMALL_PAYLOAD_BYTES,
    (b"a", memoryview(b"bc")),
    (b"a" * 5000, b"", b"b"),
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: f"{type(payload).__name__}")
def test_a_draft_knows_how_many_bytes_it_takes(tmp_path: Path, payload: Payload) -> None:
    for draft in (FrameDraft(Kind.CLOCK, payload), FrameDraft(Kind.GROUP, [FrameDraft(Kind.CLOCK, payload)])):
        assert draft.size == sum(map(len, draft.encode(0, 0)))


def test_small_frames_are_one_buffer(tmp_path: Path) -> None:
    small = FrameDraft(Kind.APPEND, b"x" * (SMALL_PAYLOAD_BYTES - 1))
    large = FrameDraft(Kind.APPEND, b"x" * SMALL_PAYLOAD_BYTES)
    assert len(small.encode(0, 0)) == 1
    assert [len(buffer) for buffer in large.encode(0, 0)] == [HEADER_BYTES, SMALL_PAYLOAD_BYTES]


def test_each_frame_of_a_write_has_its_own_position(tmp_path: Path, headers: list[Noted]) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    sync(journal)
    synced = journal.position
    journal.write([FrameDraft(Kind.APPEND, payload, first_seq=2, count=1) for payload in PAYLOADS])
    journal.close()
    assert [header.position for header in headers] == positions_on_disk(tmp_path)
    assert [header.synced for header in headers] == [0] + len(PAYLOADS) * [synced]


def test_inner_frames_have_positions_inside_their_group(tmp_path: Path, headers: list[Noted]) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    headers.clear()
    begin = journal.position
    members = [FrameDraft(Kind.APPEND, b"x" * 5000), FrameDraft(Kind.DELETE), FrameDraft(Kind.STAGE, b"fact")]
    group = FrameDraft(Kind.GROUP, members)
    journal.write([group, FrameDraft(Kind.CLOCK)])
    first = begin + HEADER_BYTES
    second = first + HEADER_BYTES + 5000
    third = second + HEADER_BYTES
    assert {(header.kind, header.position) for header in headers} == {
        (Kind.GROUP, begin),
        (Kind.APPEND, first),
        (Kind.DELETE, second),
        (Kind.STAGE, third),
        (Kind.CLOCK, begin + group.size),
    }
    for header in headers:
        found = decode_header(journal.current_file().read(HEADER_BYTES, in_file(header.position)))
        assert found is not None
        assert found.kind == header.kind
    journal.close()


def test_positions_go_on_in_the_next_file(tmp_path: Path, headers: list[Noted]) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    journal.rotate()
    journal.write([FrameDraft(Kind.APPEND, b"x", first_seq=2, count=1), FrameDraft(Kind.CLOCK)])
    journal.close()
    assert len(journal_files(tmp_path)) == 2
    assert [header.position for header in headers] == positions_on_disk(tmp_path)
    assert headers[1].position > 0


def test_positions_go_on_in_the_next_process(tmp_path: Path, headers: list[Noted]) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    journal.close()
    reader, _ = scan(tmp_path)
    again = Journal(FS, str(tmp_path), reader.files(), reader.end)
    append(again, 2)
    again.close()
    assert [header.position for header in headers] == positions_on_disk(tmp_path)


def refuse_once(monkeypatch: pytest.MonkeyPatch, file: File) -> None:
    """The next write to a file like this one ends after a few bytes; later writes succeed."""
    write: Callable[[File, Sequence[bytes], int], int] = type(file).write

    def refusing(self: File, buffers: Sequence[bytes], position: int) -> int:
        monkeypatch.setattr(type(file), "write", write)
        write(self, [b"".join(buffers)[:70]], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(file), "write", refusing)


def test_a_repeated_write_gets_headers_for_its_new_positions(
    tmp_path: Path, headers: list[Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    headers.clear()
    begin = journal.position
    refused = FrameDraft(Kind.APPEND, b"x" * 5000, first_seq=2, count=1)
    kept = FrameDraft(Kind.GROUP, [FrameDraft(Kind.DELETE, b"y" * 200, topic_id=1)])
    refuse_once(monkeypatch, journal.current_file())
    with pytest.raises(OSError, match="No space"):
        journal.write([refused, kept])
    journal.cut_back()
    sync(journal)
    assert journal.position == begin
    headers.clear()
    journal.write([kept])
    journal.close()
    assert sorted(headers, key=lambda header: header.position) == [
        (Kind.GROUP, begin, begin),
        (Kind.DELETE, begin + HEADER_BYTES, begin),
    ]
    _, items = scan(tmp_path)
    assert [item.kind for item in items if isinstance(item, Frame)] == [Kind.APPEND, Kind.DELETE]


def test_a_pending_write_has_the_position_where_the_journal_ends(
    tmp_path: Path, headers: list[Noted]
) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    begin = journal.position
    write = journal.begin_write([FrameDraft(Kind.CLOCK)])
    assert journal.position == begin
    journal.finish_write(write.run())
    assert journal.position == begin + HEADER_BYTES
    assert headers[-1].position == begin
    journal.close()


def test_a_journal_that_would_claim_too_much_writes_nothing(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    size = journal_files(tmp_path)[0].stat().st_size
    journal.synced = journal.position + 1
    with pytest.raises(InvariantViolated):
        journal.write([FrameDraft(Kind.CLOCK)])
    assert journal_files(tmp_path)[0].stat().st_size == size
    journal.close()
