"""One checksum for everything on disk."""

from xxhash import xxh3_64_intdigest

from topics.storage.fileheader import checksum


def test_one_buffer_is_plain_xxh3() -> None:
    assert checksum(b"abc") == xxh3_64_intdigest(b"abc")
    assert checksum(memoryview(b"abc")) == checksum(bytearray(b"abc")) == checksum(b"abc")


def test_buffers_are_chained() -> None:
    assert checksum() == 0
    assert checksum(b"abc", b"def") == xxh3_64_intdigest(b"def", xxh3_64_intdigest(b"abc"))
    assert checksum(b"abc", b"def") != checksum(b"abcdef")
    assert checksum(b"abc", b"def") != checksum(b"def", b"abc")
    assert checksum(b"abc", b"") != checksum(b"abc")
