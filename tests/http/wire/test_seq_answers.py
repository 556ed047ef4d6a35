"""Those who wrote one record each: each answer is what it would be if its writer had been the only one."""

import msgspec
import pytest

from topics.http.wire.seq_answers import after_seqs, single_answers, whole_answers

pytestmark = pytest.mark.usefixtures("both_ways")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: "
OPENING, AFTER = b'{"topic":"t","epoch":7,', after_seqs(1, 1.5, 0.25, 0.0)
BEFORE = OPENING + b'"first_seq":'


@pytest.mark.parametrize("first_seq", [1, 9, 98, 99, 998, 999, 1000, 9999, 12_345, 12_999, 2**53 - 3])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 2500])
def test_an_answer_says_how_long_it_is(first_seq: int, count: int) -> None:
    bodies = single_answers(BEFORE, first_seq, count, AFTER)
    told = [msgspec.json.decode(body) for body in bodies]
    assert [one["first_seq"] for one in told] == [*range(first_seq, first_seq + count)]
    expected = [HEAD + b"%d\r\n\r\n" % len(body) + body for body in bodies]
    assert whole_answers(HEAD, OPENING, first_seq, count, AFTER) == expected


def test_an_answer_says_its_seq_wherever_one_is_expected() -> None:
    seqs = b'12,"last_seq":12,"seqs":[12],"head_seq":12'
    assert single_answers(BEFORE, 11, 2, AFTER)[1] == BEFORE + seqs + AFTER
