"""Frames: headers are read as they were written, for the position where they were written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.storage.support import append, journal_files, new_journal
from topics.core.errors import InvariantViolated
from topics.storage import frame as frame_module
from topics.storage.fileheader import checksum
from topics.storage.frame import (
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    SMALL_PAYLOAD_BYTES,
    FrameDraft,
    Header,
    Kind,
    Payload,
    decode_header,
    encode_frames,
    encode_header,
)

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
        assert draft.size == sum(map(len, encode_frames([draft], 0, 0)))


def test_a_journal_that_would_claim_too_much_writes_nothing(tmp_path: Path) -> None:
    journal = new_journal(tmp_path)
    append(journal, 1)
    size = journal_files(tmp_path)[0].stat().st_size
    journal.synced = journal.position + 1
    with pytest.raises(InvariantViolated):
        journal.write([FrameDraft(Kind.CLOCK)])
    assert journal_files(tmp_path)[0].stat().st_size == size
    journal.close()
