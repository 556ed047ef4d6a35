"""What those are told who wrote records: with seqs that differ, and everything else the same."""

from functools import lru_cache

from topics.http.wire.answer_heads import LENGTHS
from topics.log import Topic
from topics.storage.rows import LAST_DIGITS, LOWEST_SEQ
from topics.values import accelerator

_FIRST, _LAST, _SEQS, _HEAD = b'"first_seq":', b',"last_seq":', b',"seqs":[', b'],"head_seq":'
# Of so many topics, what their writers were told last is kept; those that have many at a time are few.
_REMEMBERED = 256


def before_seqs(topic: Topic) -> bytes:
    return topic.opening_json + _FIRST


def after_seqs(
    count: int,
    total_ms: float,
    wal_ms: float,
    fsync_ms: float,
    *,
    created: bool = False,
    deduped: bool = False,
) -> bytes:
    """`total_ms`: how long everything took; then the journal, and the sync."""
    return (
        b',"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f}}'
        % (
            count,
            b"true" if created else b"false",
            b"true" if deduped else b"false",
            total_ms,
            wal_ms,
            fsync_ms,
        )
    )


def single_answers(before: bytes, first_seq: int, count: int, after: bytes) -> list[bytes]:
    """To each of those who wrote one record, from this seq on."""
    native = accelerator.native
    if native is not None:
        return native.answers(before, first_seq, count, after)  # type: ignore[no-any-return]
    answers: list[bytes] = []
    seq, stop = first_seq, first_seq + count
    while seq < stop:
        upper, numbers = _alike(seq, stop)
        answers += _joined(before, upper, numbers, after)
        seq += len(numbers)
    return answers


def whole_answers(head: bytes, opening: bytes, first_seq: int, count: int, after: bytes) -> list[bytes]:
    """The same with all that is in front: `head` up to the length of the body, `opening` up to its seqs."""
    thousands, at = divmod(first_seq, 1000)
    if not thousands or at + count > 1000:
        bodies = single_answers(opening + _FIRST, first_seq, count, after)
        return [head + LENGTHS[len(body)] + body for body in bodies]
    around = (*_around(head, opening, thousands, len(after)), after)
    return [number.join(around) for number in LAST_DIGITS[at : at + count]]


@lru_cache(_REMEMBERED)
def _around(head: bytes, opening: bytes, thousands: int, after_bytes: int) -> tuple[bytes, ...]:
    """What stands before the last digits of a seq, each time that it is said."""
    upper = b"%d" % thousands
    first, *others = [key + upper for key in (opening + _FIRST, _LAST, _SEQS, _HEAD)]
    length = len(first) + sum(map(len, others)) + 4 * len(LAST_DIGITS[0]) + after_bytes
    return head + LENGTHS[length] + first, *others


def _alike(seq: int, stop: int) -> tuple[bytes, list[bytes]]:
    """Seqs from this one on, below the other, with as many digits: those that all have, and the last."""
    if seq < LOWEST_SEQ:
        return b"", [b"%d" % number for number in range(seq, min(stop, 10 ** len(str(seq))))]
    # A thousand in a row differ in three digits, and those are known beforehand.
    thousands, at = divmod(seq, 1000)
    return b"%d" % thousands, LAST_DIGITS[at : at + stop - seq]


def _joined(before: bytes, upper: bytes, numbers: list[bytes], after: bytes) -> list[bytes]:
    # The number joins what stands around it: a third of what formatting it four times takes.
    around = (before + upper, _LAST + upper, _SEQS + upper, _HEAD + upper, after)
    return [number.join(around) for number in numbers]
