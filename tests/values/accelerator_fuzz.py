"""`accelerator_fuzz.py MODULE ROUNDS`: random bodies for a compiled accelerator. It must not crash.

What it answers is compared with Python elsewhere; this is to be run where every access to memory is checked.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from array import array
from typing import Any

from sockets_fuzz import drive

TOKENS = rb"""
{"records":[ {"data": "tag": "node": "meta": }]} } ] [ { , : "a" 1 -0.5e+3 01 1. null true nul "\n" "\ud800"
"\u00e9" "\x" " \ {"records":[{"data":1} ,{"data":2} {"a": "aaaaaaaaaaaaaaaaaaaaaaa" {"data":[1,{"b":"c"}]}
""".split()
GOOD = rb'[{"data":{"a":[1,-2.5e3,"x\n\u00e9"]},"tag":"t","node":"n","meta":{"k":null}},'
GOOD += rb'{"data":"}]}"},{"data":[]}]'


def body(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return b"[" * chance.randrange(2) + b"".join(chance.choices(TOKENS, k=chance.randrange(12)))
    text = bytearray(GOOD * chance.randrange(1, 4))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text))
        text[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(text[: chance.randrange(len(text) + 1)]) if chance.random() < 0.3 else bytes(text)


def remember(native: Any, chance: random.Random, rounds: int) -> None:
    """Keys come and go, and many want the same place."""
    held, model = native.Places(), dict[int, object]()
    for _ in range(rounds):
        digest = native.key_digest(chance.randbytes(16), chance.randbytes(chance.randrange(300)))
        assert len(digest) == 16
        place = chance.getrandbits(60) if chance.random() < 0.5 else chance.randrange(40) << 16
        if chance.random() < 0.6:
            held[place] = model[place] = object()
        elif model:
            place = chance.choice([place, next(iter(model)), next(reversed(model))])
            if place in model:
                del held[place], model[place]
        assert held.get(place) is model.get(place)
    assert sorted(held.keys()) == sorted(model)


def main(path: str, rounds: int) -> None:
    spec = importlib.util.spec_from_file_location("_accelerator", path)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    chance = random.Random(7)
    drive(native, chance, rounds // 20)
    remember(native, chance, rounds)
    # So large that other threads are let in meanwhile.
    large = b"[%b]" % b",".join([b'{"data":"%b","tag":"t"}' % (b"x" * 500)] * 4000)
    assert len(native.cut(large, 0, len(large)).payload(1, 1)[0]) > len(large)
    assert native.cut(large[:-1] + b",", 0, len(large)) is None
    taken = 0
    for _ in range(rounds):
        # An object of its own each time: what lies behind it is not ours.
        text = body(chance)
        together, counts, odd = native.gather([text, b'{"records":[{"data":%b' % text, body(chance)])
        if together is not None:
            rows = together.payload(chance.randrange(1, 2**60), 1)
            native.ends_behind(rows[2], chance.randrange(2**31))
            assert len(odd) + (together.count if counts is None else len(counts)) == 3
        several = [b'{"records":[{"data":%d}]}' % chance.randrange(10**9), b'{"records":[{"data":%b' % text]
        frame = native.plain_frame(
            4,
            chance.randbytes(chance.randrange(40)),
            several[: chance.randrange(1, 3)],
            1,
            9,
            1,
            0,
            0,
            5,
            len,
        )
        assert frame is None or frame[2] <= len(frame[0])
        edges = sorted(chance.randrange(-2, len(text) + 3) for _ in range(4))
        native.cells(text, array("i", edges))
        try:
            some, borders = (
                array("I", [max(edge, 0) for edge in edges]),
                chance.choice([None, array("I", [1, 2])]),
            )
            numbers = [chance.randrange(-1, 6) for _ in range(3)]
            native.alive(text, some, borders, chance.randbytes(4), *numbers, chance.randrange(99))
        except ValueError:
            pass
        native.page(text, text[: chance.randrange(40)], text)
        native.frames(b"FPJ1" + text, 0, 0, 0)
        try:
            native.frame_parts(text, array("q", edges))
        except ValueError:
            pass
        found = native.cut(text, 0, len(text))
        if found is None:
            found = native.cut(text, chance.randrange(3), chance.randrange(len(text) + 2))
        if found is None:
            continue
        taken += 1
        if chance.random() < 0.3:
            found.give_node("n" * chance.randrange(140))
        found.payload(chance.choice([1, 9, 99_999, 2**63 - 1]), chance.randrange(2**43))
        try:
            tags, _ = found.tags(), found.nodes()
        except UnicodeDecodeError:
            continue  # the server asks whether a body is UTF-8 first
        known = chance.choices([0, 254, 65_534], [990, 9, 1])[0]
        native.encode(tags, {}, ["known"] * known)
        native.post(tags * 3, 3, {}, [])
        found.data_lens(), found.meta_lens()
        native.key_of_head(chance.choice([b"", b"x"]) + b"\r\nIdempotency-Key: " + text)
        native.answers(text, chance.randrange(1, 2**60), chance.randrange(50), text)
        native.seqs(chance.randrange(1, 2**60), chance.randrange(1, 50))
    assert taken > rounds // 50, taken


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
