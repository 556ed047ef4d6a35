"""StreamPositions and ids: a seq counts in one life of a topic, and is compared with no other."""

from __future__ import annotations

import re

import pytest

from topics.core import NO_LIFE
from topics.flow.watch.sessions import StreamPositions, decode_id, encode_id


def places(**where: tuple[int, int, bool]) -> StreamPositions:
    """`name=(seq, epoch, first_life)`"""
    found = StreamPositions()
    for name, (seq, epoch, first_life) in where.items():
        found.put(name, seq, epoch, first_life=first_life)
    return found


def where(found: StreamPositions, name: str = "t") -> tuple[int, int, bool]:
    return found.seqs[name], found.epochs[name], name not in found.later


def test_an_id_is_unpadded_base64url_of_compact_json() -> None:
    assert encode_id({"lantern": 44, "tides": 7}, {}) == b"eyJsYW50ZXJuIjo0NCwidGlkZXMiOjd9"
    for seqs in ({"a": 0}, {"a": 1}, {"a": 12}, {"a?>": 2**64 - 1, "b": 3}):
        for later in ({}, {"a": 5}, {"b": 2**64 - 1}):
            encoded = encode_id(seqs, later)
            assert re.fullmatch(rb"[A-Za-z0-9_-]+", encoded)
            assert decode_id(encoded) == (seqs, later)
            assert decode_id(b" " + encoded + b"==") == (seqs, later)


def test_a_later_life_is_one_further_key() -> None:
    found = places(lantern=(44, 1, True), tides=(7, 12, False))
    # {"lantern":44,"tides":7,"~":{"tides":12}}
    assert found.event_id() == b"eyJsYW50ZXJuIjo0NCwidGlkZXMiOjcsIn4iOnsidGlkZXMiOjEyfX0"
    found.enter("tides", 13, first_life=True)
    assert found.event_id() == b"eyJsYW50ZXJuIjo0NCwidGlkZXMiOjd9"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"!!!",
        b"a",
        b"44",
        b"WzFd",  # [1]
        b"eyJhIjotMX0",  # {"a":-1}
        b"eyJhIjoiMSJ9",  # {"a":"1"}
        b"eyJhIjoxLjV9",  # {"a":1.5}
        b"eyJhIjoyOTk5OTk5OTk5OTk5OTk5OTk5OTk5OX0",
        b"/+//",
        b"eyJh!!!!IjoxfQ",
        b"eyJhIjp7ImIiOjF9fQ",  # {"a":{"b":1}}
        b"eyJhIjoxLCJ-IjoxfQ",  # {"a":1,"~":1}
        b"eyJhIjoxLCJ-Ijp7ImEiOi0xfX0",  # {"a":1,"~":{"a":-1}}
        b"eyJhIjoxLCJ-Ijp7ImEiOm51bGx9fQ",  # {"a":1,"~":{"a":null}}
    ],
)
def test_anything_else_is_not_an_id(text: bytes) -> None:
    assert decode_id(text) is None


FIRST, LATER = (9, 1, True), (9, 5, False)


@pytest.mark.parametrize(
    ("stored", "seqs", "later", "present", "expected"),
    [
        # The same life: the lower of both.
        (FIRST, {"t": 4}, {}, 1, (4, 1, True)),
        (FIRST, {"t": 40}, {}, 1, (9, 1, True)),
        (LATER, {"t": 4}, {"t": 5}, 5, (4, 5, False)),
        (LATER, {"t": 40}, {"t": 5}, 5, (9, 5, False)),
        # The same life, and the topic is in yet another one: that is for the read to tell.
        (FIRST, {"t": 4}, {}, 5, (4, 1, True)),
        # The first life, by its number.
        (FIRST, {"t": 4}, {"t": 1}, 1, (4, 1, True)),
        # Another one, whatever the numbers.
        (LATER, {"t": 4}, {}, 5, (0, NO_LIFE, False)),
        (LATER, {"t": 40}, {}, 5, (0, NO_LIFE, False)),
        (LATER, {"t": 4}, {"t": 3}, 5, (0, 3, False)),
        (LATER, {"t": 4}, {"t": 7}, 5, (0, 7, False)),
        (FIRST, {"t": 4}, {"t": 3}, 1, (0, 3, False)),
        # The id is newer than what is stored: still told, so it begins in a life that is not the present one.
        (FIRST, {"t": 4}, {"t": 5}, 5, (0, 1, False)),
        ((9, 3, False), {"t": 4}, {}, 1, (0, 3, False)),
        # The topic is gone at the time.
        (LATER, {"t": 4}, {}, None, (0, 5, False)),
        # Not a topic of the stream.
        (FIRST, {"s": 4}, {"s": 3, "t": 3}, 1, FIRST),
    ],
)
def test_rewinding(
    stored: tuple[int, int, bool],
    seqs: dict[str, int],
    later: dict[str, int],
    present: int | None,
    expected: tuple[int, int, bool],
) -> None:
    before = places(t=stored)
    after = before.rewound(encode_id(seqs, later), lambda name: present)
    assert where(after) == expected
    assert where(before) == stored, "others may still stream from there"
    # And what was rewound is understood again.
    assert where(after.rewound(after.event_id(), lambda name: present)) == expected
