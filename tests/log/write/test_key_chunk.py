"""Some hundred keys in one piece: what is taken back leaves nothing, and a full one takes no more."""

from __future__ import annotations

from topics.log.write.key_chunk import CHUNK_KEYS, KeyChunk
from topics.storage import DIGEST_BYTES


def digest(number: int) -> bytes:
    return number.to_bytes(DIGEST_BYTES)


def chunk_of(count: int) -> KeyChunk:
    """Each of a write of its own: seqs 1, 2, … at the times 10, 20, …"""
    chunk = KeyChunk(is_kept=True)
    for number in range(count):
        chunk.add(digest(number), number + 1, 10 * (number + 1), 0)
    return chunk


def test_it_closes_when_it_is_full() -> None:
    chunk = chunk_of(CHUNK_KEYS)
    assert not chunk.is_closed
    chunk.add(digest(CHUNK_KEYS), CHUNK_KEYS + 1, 1, 0)
    assert chunk.is_closed


def test_what_is_cut_off_leaves_nothing() -> None:
    chunk = chunk_of(3)
    chunk.cut(2)
    assert (chunk.digests, chunk.rows) == (chunk_of(2).digests, chunk_of(2).rows)
    chunk.cut(0)
    assert not chunk.digests
    assert not chunk.rows


def test_a_dump_ends_with_what_is_committed() -> None:
    for is_closed in (False, True):
        chunk = chunk_of(3)
        chunk.is_closed = is_closed
        for head in (2, 3):
            gone, digests, rows = chunk.dump(head)
            same = chunk_of(head)
            assert (gone, bytes(digests), bytes(rows)) == (0, bytes(same.digests), same.rows.tobytes())


def test_no_time_is_later_than_the_clock_that_was_set_back() -> None:
    chunk = chunk_of(3)
    chunk.set_back(20)
    assert [chunk.time(index) for index in range(3)] == [10, 20, 20]
