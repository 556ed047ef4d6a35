"""`fuzz.py MODULE ROUNDS`: random arguments for every function of a compiled codec. It must not crash.

Other tests compare its results with those in Python. This program is for a module that checks every access to
memory.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from array import array
from typing import Any

TOKENS = rb"""
{"records":[ {"data": "data":1 "tag": "node": "meta": "meta":{"k":1} "create":true "config":{} "op": }]} } ] [
"idempotency_key": { , : "a" 1 -0.5e+3 01 1. null true nul "\n" "\ud800" "\ud83d\ude00" "\u00e9" "\x" " \
{"records":[{"data":1} ,{"data":2} {"a": "aaaaaaaaaaaaaaaaaaaaaaa" {"data":[1,{"b":"c"}]}
"d\u0061ta": "t\u00e9"
""".split()
GOOD = rb'{"records":[{"data":{"a":[1, -2.5e3,"x\n\u00e9"]},"tag":"t\u00e9","node":"n\n","meta":{"k" :null}},'
GOOD += rb'{"data":"}]}","n\u006fde":"\ud83d\ude00"},{"data":[]}],"node":"\"N","idempotency_key":"k\/",'
GOOD += rb'"config":{"a": 1},"create":true}'
META = b",".join([b'"\\u0041%d":1' % number for number in range(80)])
MANY_KEYS = b'{"records":[{"data":1,"meta":{%b}}]}'


def body(chance: random.Random) -> bytes:
    if chance.random() < 0.4:
        return b"".join(chance.choices(TOKENS, k=chance.randrange(12)))
    if chance.random() < 0.1:
        return MANY_KEYS % META[: chance.randrange(len(META))]
    text = bytearray(GOOD)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text))
        text[at : at + chance.randrange(3)] = chance.choice([chance.randbytes(2), b"", chance.choice(TOKENS)])
    return bytes(text[: chance.randrange(len(text) + 1)]) if chance.random() < 0.2 else bytes(text)


def name(chance: random.Random) -> str | None:
    return chance.choice([None, "", "n", 'é\n"\\\x01', "x" * chance.choice([31, 32, 255, 256, 65535, 65536])])


def use(native: Any, chance: random.Random, writes: list[Any]) -> None:
    """Ask for everything that follows from some writes."""
    for write in writes:
        _ = write.key, write.create, write.config, write.size, write.patient
    count = sum(write.count for write in writes)
    hops = chance.choice([None, bytes(count)])
    rows = native.encode(
        writes, chance.choice([0, 1, 9, 95, 99_999, 2**63 - 1]), chance.randrange(2**43), hops
    )
    assert len(rows.text) + 8 + 4 * count <= len(rows.payload)
    _ = rows.data_lens, rows.meta_lens, rows.ends, rows.names


def columns(native: Any, chance: random.Random, text: bytes, edges: list[int]) -> Any:
    count = len(edges) - 1
    try:
        return native.from_columns(
            text,
            array("i", edges),
            chance.choice([None, [chance.choice([None, b"{}", text]) for _ in range(count)]]),
            (
                chance.choice([None, [name(chance) for _ in range(count)]]),
                chance.choice([None, [name(chance) for _ in range(count)], [1] * count, []]),
            ),
            checked=chance.random() < 0.5,
        )
    except (ValueError, TypeError):
        return None


def rows(native: Any, chance: random.Random, text: bytes, edges: list[int]) -> None:
    native.page(text, text[: chance.randrange(40)], text)
    ends, borders = array("I", [max(edge, 0) for edge in edges]), chance.choice([None, array("I", [1, 2])])
    numbers = [chance.randrange(-1, 6) for _ in range(3)]
    try:
        native.alive(text, ends, borders, chance.randbytes(4), *numbers, chance.randrange(99))
    except ValueError:
        pass
    native.find_frames(b"FPJ1" + text, 0, 0, 0)
    try:
        native.frame_parts(text, array("q", edges))
    except ValueError:
        pass


def main(path: str, rounds: int) -> None:
    spec = importlib.util.spec_from_file_location("_native", path)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    chance = random.Random(7)
    # So large that the lock is released meanwhile.
    large = b'{"records":[%b]}' % b",".join([b'{"data":"%b","tag":"t\\n"}' % (b"x" * 500)] * 4000)
    use(native, chance, native.decode([large]))
    assert native.decode([large[:-1]]) == [None]
    offsets = array("i", range(0, 2_000_001, 2))
    assert native.from_columns(b"10" * 1_000_000, offsets, None, (), checked=False).count == 1_000_000
    taken = 0
    for _ in range(rounds):
        # A new object each time: memory after its end is not its own.
        texts = [body(chance) for _ in range(chance.randrange(1, 4))]
        writes = [write for write in native.decode(texts, publish=chance.random() < 0.5) if write is not None]
        taken += len(writes)
        text = texts[0]
        edges = [chance.randrange(-2, len(text) + 3) for _ in range(4)]
        if chance.random() < 0.8:
            edges = sorted(max(min(edge, len(text)), 0) for edge in edges)
        made = columns(native, chance, text, edges)
        del texts
        use(native, chance, writes + ([made] if made is not None else []))
        rows(native, chance, text, edges)
    assert taken > rounds // 10, taken


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
