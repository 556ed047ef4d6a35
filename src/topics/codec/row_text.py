"""The text of a row, which is what readers receive: one JSON object a line. This module alone spells it out.

    {"$seq":12,"$ts":1700000000000,"$node":"n","data":<data>,"meta":<meta>}⏎

`$node` and `meta` are present when the record has one. The tag is stored beside the row; a reader who asks
for it gets `"$tag":"t",` before the data. A row therefore always ends `"data":<data>}` or
`"data":<data>,"meta":<meta>}`, and the place of both follows from the end of the row and their lengths.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw

from topics.core import FIELDS, NameColumns

SEQ_KEY = b'"$seq":'
TS_KEY = b',"$ts":'
DATA_KEY = b'"data":'
META_KEY = b',"meta":'
END = b"}\n"
# Templates: the text after the opening brace, with seq and time; and the tag, as JSON.
HEAD = SEQ_KEY + b"%d" + TS_KEY + b"%d,"
TAG = b'"$tag":%b,'
# A row that has only data: seq, time, data.
PLAIN = b"{" + HEAD + DATA_KEY + b"%b" + END
_BEGIN = b"{" + SEQ_KEY + b"%d"
_AROUND_DATA = len(PLAIN) - len(b"%d%d%b")

_NODE = re.compile(rb'\{"\$seq":[0-9]+,"\$ts":-?[0-9]+,"\$node":("(?:[^"\\]|\\.)*")')
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.encode

# What comes before a name in a row; empty for a field that rows do not show.
_KEYS = [b',"$%b":' % field.name.encode() if field.is_in_row else b"" for field in FIELDS]

# The JSON of a value, as it arrived or as it was stored.
Value: TypeAlias = bytes | Raw
# Joining pieces is faster than formatting from this many rows on. A seq has three last digits from 1000 on.
FEWEST_ROWS = 8
LOWEST_SEQ = 1000
_NEXT = END + b"{" + SEQ_KEY
LAST_DIGITS = [b"%03d" % number for number in range(1000)]


def around_data(seq: int, ts: int) -> int:
    """How much longer than its data a row is that has neither node nor meta."""
    return _AROUND_DATA + len(str(seq)) + len(str(ts))


def node_of(row: bytes) -> str | None:
    """The node in a row. The row may be in any shape that readers get."""
    found = _NODE.match(row)
    return None if found is None else _text.decode(found[1])


def render_rows(
    values: Sequence[Value],
    first_seq: int,
    ts: int,
    names: NameColumns = (),
    metas: Sequence[Value | None] | None = None,
) -> bytes:
    """Render a row for each value. Seqs count up from `first_seq`."""
    if metas is not None:
        values = [
            value if meta is None else b"".join((value, META_KEY, meta))
            for value, meta in zip(values, metas, strict=True)
        ]
    stamp = TS_KEY + b"%d" % ts
    plain = stamp + b"," + DATA_KEY
    shown = [(key, column) for key, column in zip(_KEYS, names, strict=False) if key and column]
    if shown:
        return _joined_rows(values, first_seq, _before_data(shown, stamp, len(values)))
    if len(values) >= FEWEST_ROWS:
        return _joined_rows(values, first_seq, [plain] * len(values))
    pieces: list[Value] = []
    for seq, value in enumerate(values, first_seq):
        pieces += (_BEGIN % seq, plain, value, END)
    return b"".join(pieces)


def _before_data(shown: list[tuple[bytes, list[str | None]]], stamp: bytes, count: int) -> list[bytes]:
    """The text between seq and data of each row. A batch has few names, so each is encoded once."""
    before = [stamp] * count
    for key, column in shown:
        texts = {name: b"" if name is None else key + _encode(name) for name in set(column)}
        before = [text + texts[name] for text, name in zip(before, column, strict=True)]
    return [text + b"," + DATA_KEY for text in before]


def _joined_rows(values: Sequence[Value], first_seq: int, before: list[bytes]) -> bytes:
    """Render rows from pieces; `before` is the text between seq and data of each.

        {"$seq":12 | 345 | ,"$ts":1700000000000,"data": | {"a":1} | }⏎{"$seq":12 | 346 | …

    This is twice as fast as formatting row by row: a thousand consecutive seqs differ in their last three
    digits only, and the text of these is computed beforehand.
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
    if count:
        heads[0] = heads[0][len(END) :]
    pieces: list[Value] = [END] * (4 * count + 1 if count else 0)
    pieces[0:-1:4] = heads
    pieces[1::4] = numbers
    pieces[2::4] = before
    pieces[3::4] = values
    return b"".join(pieces)
