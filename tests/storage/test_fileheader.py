"""The header all file formats share."""

import pytest
from xxhash import xxh3_64_intdigest

from tests.support.damage import OTHER_FORMAT, in_other_format
from topics.storage.fileheader import FILE_HEADER_BYTES, OtherFormat, checksum, decode, encode

MAGIC = b"TOPICSXX"


def test_round_trip() -> None:
    header = encode(MAGIC, 2**64 - 1)
    assert len(header) == FILE_HEADER_BYTES
    assert decode(header, MAGIC) == 2**64 - 1
    assert decode(memoryview(header + b"more"), MAGIC) == 2**64 - 1


def test_every_byte_is_covered() -> None:
    header = encode(MAGIC, 77, b"body")
    assert decode(header, MAGIC, b"body") == 77
    assert decode(header, MAGIC, b"bodY") is None
    assert decode(header, MAGIC) is None
    for at in range(len(header)):
        damaged = bytearray(header)
        damaged[at] ^= 1
        assert decode(damaged, MAGIC, b"body") is None
        assert decode(header[:at], MAGIC, b"body") is None


def test_another_version_is_refused_not_called_damaged() -> None:
    header = in_other_format(encode(MAGIC, 7))
    with pytest.raises(OtherFormat, match=f"a TOPICSXX file has format {OTHER_FORMAT}, and this version"):
        decode(header, MAGIC)
    assert decode(header[:-1] + b"?", MAGIC) is None, "a format under a bad checksum says nothing"


def test_one_buffer_is_plain_xxh3() -> None:
    assert checksum(b"abc") == xxh3_64_intdigest(b"abc")
    assert checksum(memoryview(b"abc")) == checksum(bytearray(b"abc")) == checksum(b"abc")


def test_buffers_are_chained() -> None:
    assert checksum() == 0
    assert checksum(b"abc", b"def") == xxh3_64_intdigest(b"def", xxh3_64_intdigest(b"abc"))
    assert checksum(b"abc", b"def") != checksum(b"abcdef")
    assert checksum(b"abc", b"def") != checksum(b"def", b"abc")
    assert checksum(b"abc", b"") != checksum(b"abc")
