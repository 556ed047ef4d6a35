"""What those are told who wrote records: with seqs that differ, and everything else the same."""

from topics.http.wire.answer_heads import LENGTHS
from topics.log import Topic
from topics.values import accelerator

_LAST, _SEQS, _HEAD = b',"last_seq":', b',"seqs":[', b'],"head_seq":'
_BETWEEN_BYTES = len(_LAST) + len(_SEQS) + len(_HEAD)


def before_seqs(topic: Topic) -> bytes:
    return topic.opening_json + b'"first_seq":'


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
    around = (before, _LAST, _SEQS, _HEAD, after)
    # The number joins what stands around it: a third of what formatting it four times takes.
    return [(b"%d" % seq).join(around) for seq in range(first_seq, first_seq + count)]


def whole_answers(head: bytes, before: bytes, first_seq: int, count: int, after: bytes) -> list[bytes]:
    """The same with what stands in front of a body. `head`: all of that up to the length."""
    answers: list[bytes] = []
    seq, stop = first_seq, first_seq + count
    others = len(before) + _BETWEEN_BYTES + len(after)
    while seq < stop:
        # As long as the seqs have as many digits, the length is the same.
        digits = len(str(seq))
        until = 10**digits
        if until > stop:
            until = stop
        start = head + LENGTHS[others + 4 * digits] + before
        answers += single_answers(start, seq, until - seq, after)
        seq = until
    return answers
