"""The header all file formats share."""

import pytest

from topics.storage.fileheader import FILE_HEADER_BYTES, ForeignFile, decode, encode

MAGIC = b"TOPICSXX"


def test_round_trip() -> None:
    header = encode(MAGIC, 1, 2**64 - 1)
    assert len(header) == FILE_HEADER_BYTES
    assert decode(header, MAGIC, 1) == 2**64 - 1
    assert decode(memoryview(header + b"more"), MAGIC, 1) == 2**64 - 1


def test_every_byte_is_covered() -> None:
    header = encode(MAGIC, 1, 77, b"body")
    assert decode(header, MAGIC, 1, b"body") == 77
    assert decode(header, MAGIC, 1, b"bodY") is None
    assert decode(header, MAGIC, 1) is None
    for at in range(len(header)):
        damaged = bytearray(header)
        damaged[at] ^= 1
        assert decode(damaged, MAGIC, 1, b"body") is None


@pytest.mark.parametrize("size", [0, 1, FILE_HEADER_BYTES - 1])
def test_too_short(size: int) -> None:
    assert decode(encode(MAGIC, 1, 0)[:size], MAGIC, 1) is None


def test_another_format_is_not_ours() -> None:
    assert decode(encode(b"OTHERAPP", 1, 0), MAGIC, 1) is None


def test_another_version_is_refused_not_called_damaged() -> None:
    with pytest.raises(ForeignFile, match="TOPICSXX file has version 2; this release reads version 1"):
        decode(encode(MAGIC, 2, 0), MAGIC, 1)
