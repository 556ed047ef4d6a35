"""Bodies of appends as text: every way in which JSON can be written, right and wrong.

Bytes that are no UTF-8 are surrogate escapes in these texts: `encoded` turns them back into bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pyarrow

MIB = 1 << 20
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)
_BLANKS = ("", "", "", " ", "\t", "\r\n", "\n", "  ", " \t\r\n ")


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- how tokens are put together ----------------------------------------------------------------------------


def as_compact(text: str, _: Random) -> str:
    return text


def as_dumps(text: str, _: Random) -> str:
    return "".join(token + " " if token in (",", ":") else token for token in _TOKEN.findall(text))


def as_pretty(text: str, _: Random) -> str:
    lines, depth = [], 0
    for token in _TOKEN.findall(text):
        if token in ("{", "["):
            depth += 1
            lines.append(token + "\n" + "  " * min(depth, 8))
        elif token in ("}", "]"):
            depth -= 1
            lines.append("\n" + "  " * max(min(depth, 8), 0) + token)
        elif token == ",":
            lines.append(",\n" + "  " * max(min(depth, 8), 0))
        else:
            lines.append(": " if token == ":" else token)
    return "".join(lines)


def as_tabs(text: str, random: Random) -> str:
    parts = [random.choice(_BLANKS)]
    for token in _TOKEN.findall(text):
        parts += [token, random.choice(_BLANKS)]
    return "".join(parts)


LAYOUTS: tuple[tuple[str, Callable[[str, Random], str], int], ...] = (
    ("compact", as_compact, 60),
    ("blanks of json.dumps", as_dumps, 18),
    ("pretty-printed", as_pretty, 10),
    ("tabs and CRLF", as_tabs, 12),
)

# --- values -------------------------------------------------------------------------------------------------

_VALUES = (
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "7",
    "-12",
    "1.5",
    "1.0",
    "0.1",
    "1e5",
    "1E+2",
    "1.25e-7",
    "123456789012345678901234567890",
    "9223372036854775808",
    '""',
    '"a"',
    '"\\u0061\\n\\t\\/\\\\\\""',
    '"\\u00e9 \\ud83d\\ude00"',
    '"é 😀 日本"',
    '"\\u0000"',
    '"\x7f"',
    '"]}"',
    '"{\\"data\\":1}"',
    "[]",
    "{}",
    "[1,2,3]",
    '{"a":1,"b":[true,null]}',
    '{"a":{"b":{"c":{}}}}',
    '{"data":1,"tag":"x","records":[]}',
    '{"a":1,"a":2}',
    '{"":0}',
    '{"\\u0061":1}',
    "[[[[[[]]]]]]",
    '{"$seq":1,"$ts":2}',
)
# Numbers and texts that JSON does not allow, or that not every parser takes.
WRONG_VALUES = (
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "-01",
    "1.",
    ".5",
    "+1",
    "1e",
    "1e+",
    "1e999",
    "-1e999",
    "-",
    "0x10",
    "1_000",
    "tru",
    "True",
    "nul",
    "None",
    "'a'",
    "undefined",
    '"a\nb"',
    '"a\tb"',
    '"a\0b"',
    '"\\x41"',
    '"\\u12"',
    '"\\u12g4"',
    '"\\',
    '"open',
    '"\\ud800"',
    '"\\udc00"',
    '"\\ud800\\ud800"',
    '"\\ud83d\\u0041"',
    '"\\udfff\\ud83d"',
    '"\udcff"',
    '"\udcc3"',
    '"\udcc3("',
    '"\udced\udca0\udc80"',
    '"\udcc0\udc80"',
    '"\udcf4\udc90\udc80\udc80"',
    '"\udce2\udc82"',
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1",
    "]",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    "{1:2}",
    '{"a":1',
    "1 2",
    "/*c*/1",
    "\x0b1",
    "\u00a01",
    "",
)
# What stands around one right record.
WRONG_BODIES = (
    "",
    " ",
    "\r\n",
    "{",
    "}",
    "[]",
    "{}",
    "null",
    "1",
    '"records"',
    "true",
    '[{"data":1}]',
    '{"records"',
    '{"records":',
    '{"records":[',
    '{"records":[{"data":1}',
    '{"records":[{"data":1}]',
    '{"records":[{"data":1}]}}',
    '{"records":[{"data":1}]}]',
    '{"records":[{"data":1}]} x',
    '{"records":[{"data":1}]}{"records":[{"data":2}]}',
    '{"records":[{"data":1}]}\0',
    '{"records":[{"data":1},]}',
    '{"records":[,{"data":1}]}',
    '{"records":[{"data":1}{"data":2}]}',
    '{"records":[{"data":1,}]}',
    '{"records":[{"data" 1}]}',
    '{"records":[{"data":1}],}',
    '{,"records":[{"data":1}]}',
    '{"records":[{"data":1}];}',
    "{'records':[{'data':1}]}",
    '{records:[{"data":1}]}',
    '{"records":[{"data":1}]}//',
    '\ufeff{"records":[{"data":1}]}',
    '{"records":[]}',
    '{"records":null}',
    '{"records":{}}',
    '{"records":{"data":1}}',
    '{"records":"a"}',
    '{"records":1}',
    '{"records":[1]}',
    '{"records":[null]}',
    '{"records":[[]]}',
    '{"records":["a"]}',
    '{"records":[{}]}',
    '{"records":[{"data":1},{}]}',
    '{"records":[{"data":1},2]}',
    '{"records":[{"tag":"a"}]}',
    '{"record":[{"data":1}]}',
    '{"data":1}',
    '{"Records":[{"data":1}]}',
    '{"records":[{"Data":1}]}',
    '{"records":[{"data":1,"data":2}]}',
    '{"records":[{"data":1,"tag":"a","tag":"b"}]}',
    '{"records":[{"data":1,"node":"a","node":"a"}]}',
    '{"records":[{"data":1,"meta":{},"meta":{}}]}',
    '{"records":[{"data":1}],"records":[{"data":2}]}',
    '{"node":"a","records":[{"data":1}],"node":"b"}',
    '{"create":true,"create":false,"records":[{"data":1}]}',
    '{"idempotency_key":"a","records":[{"data":1}],"idempotency_key":"b"}',
    '{"records":[{"d\\u0061ta":1}]}',
    '{"rec\\u006frds":[{"data":1}]}',
    '{"records":[{"data":1,"t\\u0061g":"x"}]}',
    '{"records":[{"data":1,"d\\u0061ta":2}]}',
    '{"records":[{"data":1}],"node\\u0000":"x"}',
    '{"records":[{"data":1}],"":1}',
    '{"records":[{"data":1,"":1}]}',
    '{"records":[{"data":1,"\\ud800":1}]}',
    '{"records":[{"data":1,"\udcff":1}]}',
    '{"records":[{"data":1,"tags":"a"}]}',
    '{"records":[{"data":1,"seq":4}]}',
    '{"records":[{"data":1}],"nodes":"a"}',
    '{"records":[{"data":1}],"unknown":{"a":[1]}}',
    '{"records":[{"data":1}],"return_seq":false}',
    '{"records":[{"data":1}],"config":[]}',
    '{"records":[{"data":1}],"config":null}',
    '{"records":[{"data":1}],"config":{"ttl":1}}',
    '{"records":[{"data":1}],"config":{"ttl_ms":-1}}',
    '{"records":[{"data":1}],"config":{"ttl_ms":1.5}}',
    '{"records":[{"data":1}],"config":{"durability":"x"}}',
    '{"records":[{"data":1}],"config":{"discard":null}}',
    '{"records":[{"data":1}],"create":"no"}',
    '{"records":[{"data":1}],"create":0}',
    '{"records":[{"data":1}],"create":null}',
    '{"records":[{"data":1}],"return_seqs":1}',
    '{"records":[{"data":1}],"return_seqs":null}',
    '{"records":[{"data":1}],"disable_backpressure":"x"}',
    '{"records":[{"data":1}],"disable_backpressure":null}',
)
# For a tag, a node or a key: a type that is wrong.
_WRONG_TEXTS = ("null", "1", "true", "[]", "{}", '["a"]', '"\\ud800"', '"\udcff"', '"a\nb"', '""')


def value(random: Random) -> str:
    """The text of a right value."""
    luck = random.random()
    if luck < 0.55:
        return f'{{"n":{random.randrange(10**6)},"text":"{"x" * random.randrange(40)}"}}'
    if luck < 0.92:
        return random.choice(_VALUES)
    if luck < 0.97:
        return '"' + "y" * random.choice((50, 200, 1000, 5000)) + '"'
    return compact({"list": [random.random() for _ in range(random.randrange(30))]})


def deep(random: Random) -> str:
    """A value with so many arrays and objects inside of each other."""
    depth = random.choice((10, 20, 60, 100, 200, 254, 255, 256, 300, 400, 500, 511, 512, 600, 700))
    kind = random.randrange(3)
    if kind == 0:
        return "[" * depth + "]" * depth
    if kind == 1:
        return '{"a":' * depth + "1" + "}" * depth
    return '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2)


def of_size(size: int, random: Random) -> str:
    """A text in quotes that has so many bytes between them."""
    kind = random.randrange(4)
    if kind == 0 and size % 2 == 0:
        return '"' + "é" * (size // 2) + '"'
    if kind == 1 and size % 3 == 0:
        return '"' + "日" * (size // 3) + '"'
    if kind == 2 and size % 4 == 0:
        return '"' + "\\ud83d\\ude00" * (size // 4) + '"'
    return '"' + "a" * size + '"'


def meta(random: Random, features: list[str]) -> str:
    luck = random.random()
    if luck < 0.6:
        return compact({"trace": "f00d", "n": random.randrange(100)})
    if luck < 0.7:
        return random.choice(("{}", '{"a":null}', '{"a":{"b":[1,2]}}', '{"é":"é"}', '{"a":1,"a":2}'))
    if luck < 0.8:
        features.append("meta of 64 or 65 keys")
        count = random.choice((63, 64, 64, 65, 65, 100))
        return compact({f"k{number}": number for number in range(count)})
    if luck < 0.88:
        features.append("meta of about 16384 bytes")
        return '{"k":"' + "m" * (16384 - 8 + random.choice((-1, 0, 0, 1, 1, 500))) + '"}'
    if luck < 0.94:
        features.append("meta with wrong value")
        return '{"a":' + random.choice(WRONG_VALUES) + "}"
    features.append("meta no object")
    return random.choice(("null", "1", '"a"', "[]", '[{"a":1}]', "true"))


def record(random: Random, features: list[str], *, fields: int = 0) -> str:
    """The text of a record: with data alone, or with some other fields."""
    parts = ['"data":' + value(random)]
    if fields:
        kinds = random.sample(("tag", "node", "meta"), fields)
        if "tag" in kinds:
            features.append("tag")
            parts.append('"tag":' + tag(random, features))
        if "node" in kinds:
            features.append("node")
            parts.append('"node":' + node(random, features))
        if "meta" in kinds:
            features.append("meta")
            parts.append('"meta":' + meta(random, features))
        if random.random() < 0.3:
            random.shuffle(parts)
    return "{" + ",".join(parts) + "}"


def tag(random: Random, features: list[str]) -> str:
    luck = random.random()
    if luck < 0.85:
        return f'"{random.choice(("user", "vip", "é"))}:{random.randrange(5)}"'
    if luck < 0.95:
        features.append("tag of about 256 bytes")
        return of_size(random.choice((255, 256, 256, 257, 258)), random)
    features.append("tag of a wrong type")
    return random.choice(_WRONG_TEXTS)


def node(random: Random, features: list[str]) -> str:
    luck = random.random()
    if luck < 0.88:
        return f'"web-{random.randrange(3)}"'
    if luck < 0.95:
        features.append("node of about 128 bytes")
        return of_size(random.choice((126, 127, 128, 128, 129, 132)), random)
    features.append("node of a wrong type")
    return random.choice(_WRONG_TEXTS)


def body_key(random: Random, features: list[str], usual: str) -> str:
    """The text of a key in the body."""
    luck = random.random()
    if luck < 0.8:
        return f'"{usual}"'
    if luck < 0.87:
        features.append("key with an escape in the body")
        return f'"\\u00{ord(usual[0]):02x}{usual[1:]}"'
    if luck < 0.94:
        features.append("key of about 256 bytes in the body")
        return of_size(random.choice((255, 256, 256, 257, 258)), random)
    features.append("key of a wrong type in the body")
    return random.choice(_WRONG_TEXTS)


# --- whole bodies -------------------------------------------------------------------------------------------


@dataclass
class AppendBody:
    """The members of an append's object in front of and behind `records`, and what it is an example of."""

    records: list[str]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)

    def add(self, random: Random, member: str, *, is_before: bool | None = None) -> None:
        in_front = random.random() < 0.5 if is_before is None else is_before
        (self.before if in_front else self.after).append(member)

    def text(self, random: Random) -> str:
        records = '"records":[' + ",".join(self.records) + "]"
        whole = "{" + ",".join([*self.before, records, *self.after]) + "}"
        names, layouts, weights = zip(*LAYOUTS, strict=True)
        at = random.choices(range(len(LAYOUTS)), weights)[0]
        self.features.append(names[at])
        return str(layouts[at](whole, random))


def append_body(random: Random) -> AppendBody:
    """Mostly right; the first feature is its shape."""
    luck = random.random()
    features: list[str] = []
    if luck < 0.42:
        return AppendBody([record(random, features)], features=["append: data alone", *features])
    if luck < 0.66:
        texts = [record(random, features, fields=random.choice((1, 1, 2, 3)))]
        return AppendBody(texts, features=["append: tag, node, meta", *features])
    if luck < 0.78:
        texts = [record(random, features, fields=random.choice((0, 0, 0, 1, 2))) for _ in range(2)]
        return AppendBody(texts, features=["append: two records", *features])
    if luck < 0.85:
        texts = [
            record(random, features, fields=random.choice((0, 0, 1))) for _ in range(random.randint(3, 12))
        ]
        return AppendBody(texts, features=["append: 3 to 12 records", *features])
    if luck < 0.88:
        if random.random() < 0.5:
            texts = [f'{{"data":{number}}}' for number in range(100)]
        else:
            texts = [f'{{"data":{{"n":{number}}},"tag":"user:{number % 7}"}}' for number in range(100)]
        return AppendBody(texts, features=["append: 100 records"])
    if luck < 0.92:
        texts = ['{"data":' + deep(random) + "}"]
        return AppendBody(texts, features=["append: deep nesting"])
    texts = [record(random, features) for _ in range(random.choice((0, 0, 0, 1, 3)))]
    texts.insert(random.randrange(len(texts) + 1), '{"data":' + random.choice(WRONG_VALUES) + "}")
    return AppendBody(texts, features=["append: a wrong or odd value", *features])


def large_body(random: Random) -> tuple[str, str]:
    """A body with about as large a record or as many records as it may have, and its shape."""
    luck = random.random()
    if luck < 0.7:
        size = MIB - 2 + random.choice((-1000, -1, 0, 0, 1, 1, 2, 100))
        extra = random.choice(("", "", ',"tag":"a"', ',"meta":{"a":1}'))
        return '{"records":[{"data":"' + "a" * size + f'"{extra}}}]}}', "append: record of about 1 MiB"
    if luck < 0.85:
        count = random.choice((9999, 10000, 10001, 10100))
        records = ",".join(['{"data":1}'] * count)
        return '{"records":[' + records + "]}", "append: about 10000 records"
    blanks = " " * random.choice((MIB // 2, MIB + 10))
    return '{"records":' + blanks + '[{"data":1}]}', "append: many blanks"


def arrow_body(random: Random) -> tuple[bytes, str]:
    """The body of an Arrow append, and its shape."""
    sink = pyarrow.BufferOutputStream()
    luck = random.random()
    count = random.choice((1, 1, 2, 5, 50))
    columns: dict[str, list[str | None]] = {"data": [value(random) for _ in range(count)]}
    shape = "arrow append"
    if random.random() < 0.5:
        columns["tag"] = [random.choice(("user:1", "vip:2", None)) for _ in range(count)]
    if random.random() < 0.3:
        columns["node"] = [random.choice(("web-1", None)) for _ in range(count)]
    if random.random() < 0.3:
        columns["meta"] = [random.choice(('{"a":1}', '{ "b" : 2 }', None)) for _ in range(count)]
    if luck < 0.15:
        shape = "arrow append, wrong cell"
        columns["data"][random.randrange(count)] = random.choice(
            [*(text for text in WRONG_VALUES if text.isascii()), None]
        )
    elif luck < 0.2:
        shape = "arrow append, unknown or missing column"
        columns["tags" if random.random() < 0.5 else "data"] = columns.pop("data")
    batch = pyarrow.record_batch(
        {name: pyarrow.array(cells, pyarrow.string()) for name, cells in columns.items()}
    )
    with pyarrow.ipc.new_stream(sink, batch.schema) as out:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            out.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    if 0.2 <= luck < 0.25:
        return data[: random.randrange(len(data))], "arrow append, cut short"
    return data, shape
