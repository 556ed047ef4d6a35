"""Frames of plain records: what is in them is what a reader of the journal finds."""

import pytest

from topics.log.write.append_frame import plain_parts
from topics.log.write.gather import split_plain
from topics.log.write.plain_frame import plain_frame
from topics.storage.frame import HEADER_BYTES

pytestmark = pytest.mark.usefixtures("both_ways")
TS = 1_763_240_000_000


@pytest.mark.parametrize("first_seq", [1, 8, 95, 998, 1000, 99_990, 2**53 - 30])
@pytest.mark.parametrize("count", [1, 3, 7, 8, 20, 100])
@pytest.mark.parametrize("is_cut", [False, True])
def test_rows_lie_where_they_are_said_to_lie(first_seq: int, count: int, is_cut: bool) -> None:
    bodies = [b'{"records":[{"data":%d}]}' % 10 ** (at % 5) for at in range(count)]
    plain = split_plain(bodies) if is_cut else None
    made = plain_frame(4, b"", bodies, 7, first_seq, TS, 0, 12, 77, plain)
    assert made is not None
    frame, its_rows, ends, size = made
    rows = [b'{"$seq":%d,"$ts":%d,"data":%d}\n' % (first_seq + at, TS, 10 ** (at % 5)) for at in range(count)]
    assert its_rows == b"".join(rows)
    assert [*ends] == [77 + sum(map(len, rows[: at + 1])) for at in range(count)]
    found, lengths = plain_parts(memoryview(frame)[HEADER_BYTES:], count)
    assert found == b"".join(rows)
    assert [*lengths.cast("I")] == [1 + at % 5 for at in range(count)]
    assert size == sum(lengths.cast("I"))


@pytest.mark.parametrize("odd", [b'{"records":[{"data":1,"tag":"t"}]}', b'{"records":[]}', b"x"])
def test_what_is_not_plain_has_no_frame(odd: bytes) -> None:
    assert plain_frame(4, b"", [b'{"records":[{"data":1}]}', odd], 7, 1, TS, 0, 12, 0) is None
