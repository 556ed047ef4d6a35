"""Frame headers: what goes in comes out, and a header that was touched is none."""

import pytest

from topics.storage.fileheader import checksum
from topics.storage.frame import (
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    Frame,
    Header,
    Kind,
    decode_header,
)
from topics.storage.journal import encode_header

U64 = 2**64 - 1


def test_round_trip() -> None:
    data = encode_header(Kind.APPEND, 5, 3, 7, 100, 1234, 99, checksum(b"payload"), 7)
    assert len(data) == HEADER_BYTES == 64
    assert data.startswith(FRAME_MAGIC_BYTES)
    expected = Header(
        Kind.APPEND, 5, 3, 7, 100, 1234, 99, payload_checksum=checksum(b"payload"), payload_length=7
    )
    assert decode_header(data) == expected
    assert decode_header(memoryview(b"12345" + data), 5) == expected


def test_extremes_fit() -> None:
    limits = (255, 255, 2**32 - 1, U64, U64, U64, U64, U64, 2**32 - 1)
    header = decode_header(encode_header(*limits))
    assert header == Header(
        255, 255, 2**32 - 1, U64, U64, U64, U64, payload_checksum=U64, payload_length=2**32 - 1
    )


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_every_byte_is_covered(at: int) -> None:
    data = bytearray(encode_header(Kind.DELETE, 0, 1, 2, 3, 4, 5, 6, 7))
    data[at] ^= 0x10
    assert decode_header(bytes(data)) is None


def test_cut_short() -> None:
    data = encode_header(Kind.DELETE, 0, 1, 2, 3, 4, 5, 6, 7)
    assert decode_header(data[:-1]) is None
    assert decode_header(data, 1) is None
    assert decode_header(b"") is None


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
        "STAGE": 16,
        "DEAD_LETTER": 17,
        "LINES": 18,
    }
    assert known.items() <= {kind.name: kind.value for kind in Kind}.items()
