"""The text of a row, which is what readers receive: one JSON object a line, spelled out here only.

    {"$seq":12,"$ts":1700000000000,"$node":"n","data":<data>,"meta":<meta>}⏎

`$node` and `meta` are there when the record has one. The tag is stored beside the row; a reader who asks for
it gets `"$tag":"t",` before the data. So a row always ends `"data":<data>}`, or
`"data":<data>,"meta":<meta>}`, and where these lie follows from its end and their lengths.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

SEQ, TS, NODE = "$seq", "$ts", "$node"
SEQ_KEY = b'"$seq":'
TS_KEY = b',"$ts":'
NODE_KEY = b',"$node":'
DATA_KEY = b'"data":'
META_KEY = b',"meta":'
END = b"}\n"
# To be filled in: what comes behind the opening brace, with seq and time; and the tag, as JSON.
HEAD = SEQ_KEY + b"%d" + TS_KEY + b"%d,"
TAG = b'"$tag":%b,'
# A row of nothing but data: seq, time, data.
PLAIN = b"{" + HEAD + DATA_KEY + b"%b" + END
_BEGIN = b"{" + SEQ_KEY + b"%d"
# The same as text, which is put together faster than bytes: before the seq, the time and the data, and last.
_BEFORE_SEQ, _BEFORE_TS = "{" + SEQ_KEY.decode(), TS_KEY.decode()
_BEFORE_DATA, _LAST = "," + DATA_KEY.decode(), END.decode()
_AROUND_DATA = len(PLAIN) - len(b"%d%d%b")

_NODE = re.compile(rb'\{"\$seq":[0-9]+,"\$ts":-?[0-9]+,"\$node":("(?:[^"\\]|\\.)*")')
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.encode

# The JSON of a value, as it arrived or as it was stored.
Value: TypeAlias = bytes | Raw
# Joining pieces pays from so many rows on, and a seq has three last digits from this one on.
FEWEST_ROWS = 8
LOWEST_SEQ = 1000
_NEXT = END + b"{" + SEQ_KEY
LAST_DIGITS = [b"%03d" % number for number in range(1000)]


def around_data(seq: int, ts: int) -> int:
    """How much longer than its data a row is that has neither node nor meta."""
    return _AROUND_DATA + len(str(seq)) + len(str(ts))


def node_of(row: bytes) -> str | None:
    """Who wrote the record, as its row says; the row may be in any shape that readers get."""
    found = _NODE.match(row)
    return None if found is None else _text.decode(found[1])


def restamp(
    rows: NDArray[np.uint8], ends: NDArray[np.uint32], were: tuple[int, int], are: tuple[int, int]
) -> bool:
    """Give rows that were rendered for one first seq and time another one, in their place.

    False if the numbers do not have as many digits as before: then nothing is changed.
    """
    last = len(ends) - 1
    digits = len(str(were[0]))
    if {len(str(seq)) for seq in (were[0] + last, are[0], are[0] + last)} != {digits}:
        return False
    before, after = str(were[1]).encode(), str(are[1]).encode()
    if len(before) != len(after):
        return False
    at = np.zeros(len(ends), np.int64)
    at[1:] = ends[:-1]
    at += len(b"{" + SEQ_KEY)
    seqs = np.arange(are[0], are[0] + len(ends))
    for place in range(digits):
        unit = 10 ** (digits - 1 - place)
        if were[0] // unit != (are[0] + last) // unit or were[0] > are[0]:
            rows[at + place] = seqs // unit % 10 + ord("0")
    at += digits + len(TS_KEY)
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            rows[at + place] = new
    return True


def render_rows(
    values: Sequence[Value],
    first_seq: int,
    ts: int,
    nodes: Sequence[str | None] | None = None,
    metas: Sequence[Value | None] | None = None,
) -> bytes:
    """A row for each value, their seqs counting up from `first_seq`."""
    if metas is not None:
        values = [
            value if meta is None else b"".join((value, META_KEY, meta))
            for value, meta in zip(values, metas, strict=True)
        ]
    stamp = TS_KEY + b"%d" % ts
    plain = stamp + b"," + DATA_KEY
    if nodes is not None:
        # The same few wrote most of them.
        texts = {
            node: plain if node is None else b"%b%b%b,%b" % (stamp, NODE_KEY, _encode(node), DATA_KEY)
            for node in set(nodes)
        }
        return _joined_rows(values, first_seq, [texts[node] for node in nodes])
    if len(values) >= FEWEST_ROWS:
        return _joined_rows(values, first_seq, [plain] * len(values))
    pieces: list[Value] = []
    seq = first_seq
    for value in values:
        pieces += (_BEGIN % seq, plain, value, END)
        seq += 1
    return b"".join(pieces)


def rows_and_ends(values: Sequence[str], first_seq: int, ts: int, offset: int) -> tuple[bytes, list[int]]:
    """Rows of nothing but data, which is ASCII; and where each of them ends behind `offset` bytes."""
    begin, stamp, last = _BEFORE_SEQ, f"{_BEFORE_TS}{ts}{_BEFORE_DATA}", _LAST
    rows: list[str] = []
    ends: list[int] = []
    seq = first_seq
    for value in values:
        row = f"{begin}{seq}{stamp}{value}{last}"
        rows.append(row)
        offset += len(row)
        ends.append(offset)
        seq += 1
    return "".join(rows).encode(), ends


def _joined_rows(values: Sequence[Value], first_seq: int, before: list[bytes]) -> bytes:
    """The rows of these values; `before`: what stands between the seq and the data of each.

        {"$seq":12 | 345 | ,"$ts":1700000000000,"data": | {"a":1} | }⏎{"$seq":12 | 346 | …

    Joined from pieces, which is twice as fast as formatting one by one: a thousand consecutive seqs differ in
    their last three digits only, and those are known beforehand.
    """
    count = len(values)
    if first_seq < LOWEST_SEQ:
        heads = [_NEXT] * count
        numbers = [b"%d" % seq for seq in range(first_seq, first_seq + count)]
    else:
        thousands, digits = divmod(first_seq, 1000)
        numbers = LAST_DIGITS[digits : digits + count]
        heads = [_NEXT + b"%d" % thousands] * len(numbers)
        while len(numbers) < count:
            thousands += 1
            taken = LAST_DIGITS[: count - len(numbers)]
            heads += [_NEXT + b"%d" % thousands] * len(taken)
            numbers += taken
    heads[0] = heads[0][len(END) :]
    pieces: list[Value] = [END] * (4 * count + 1)
    pieces[0:-1:4] = heads
    pieces[1::4] = numbers
    pieces[2::4] = before
    pieces[3::4] = values
    return b"".join(pieces)
