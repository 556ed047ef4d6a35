"""Append requests for tests of the codec: valid, nearly valid, and arbitrary bytes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

names = st.one_of(
    st.none(),
    st.sampled_from(["a", "user:7", "", "ä€😀", 'q"', "b\\", "\n", "\0", "/", "\x7f", "x" * 64, "é" * 70]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=6,
)
metas = st.one_of(st.none(), st.dictionaries(text, values, max_size=3), values)
good_records = st.fixed_dictionaries({"data": values}, optional={"tag": names, "node": names})
any_records = st.fixed_dictionaries(
    {"data": values}, optional={"tag": names, "node": names, "meta": metas, "seq": st.just(1)}
)
# Mostly what is right: bodies with mistakes look much the same.
requests = st.fixed_dictionaries(
    {"records": st.one_of(st.lists(good_records, max_size=20), st.lists(any_records, max_size=4))},
    optional={
        "node": names,
        "create": st.sampled_from([True, False, None]),
        "idempotency_key": names,
        "config": st.sampled_from([None, {}, {"ttl_ms": 5}, {"ttl_ms": "x"}, {"nope": 1}, [], 1]),
        "disable_backpressure": st.sampled_from([True, False, None]),
        "return_seqs": st.sampled_from([True, False, 1]),
        "op": st.sampled_from(["publish", 7]),
        "request_id": values,
        "topic": st.sampled_from(["t", None, 1]),
        "x": st.just(1),
    },
)


@st.composite
def spelled(draw: st.DrawFn, requests: st.SearchStrategy[Any]) -> bytes:
    """A request as JSON: keys in any order, with or without blanks and escapes."""
    request = draw(requests)
    if draw(st.booleans()):
        request = dict(draw(st.permutations(list(request.items()))))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")]))
    body = json.dumps(request, separators=separators, ensure_ascii=draw(st.booleans())).encode()
    if draw(st.booleans()):
        body = body.replace(b'"data"', rb'"d\u0061ta"').replace(b'"records"', rb'"rec\u006Frds"')
    return body


good_bodies = spelled(st.fixed_dictionaries({"records": st.lists(good_records, min_size=1, max_size=20)}))
request_bodies = spelled(requests)

TOKENS = rb"""
{"records":[ {"data": "data":1 "tag": "node": "meta": "meta":{"k":1} "create":true "config":{}
"idempotency_key": "op": "request_id":[1] "topic":"t" }]} }], } ] [ { , : "a" 1 -0.5e+3 01 1. null true nul
"\n" "\ud800" "\u00e9" "\ud83d\ude00" "\x" " \ {"records":[{"data":1} ,{"data":2} {"a":
""".split()
TOKENS += [
    b" ",
    b"\n",
    b"\t",
    b"\r",
    b"\x0c",
    b"\0",
    b"\xc3\xa9",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
]
token_bodies = st.lists(st.sampled_from(TOKENS), max_size=14).map(b"".join)

COMPLETE = (
    rb'{"op":"publish","request_id":7,"topic":"t","records":[{"data":{"a":[1,-2.5e3,"x\n\u00e9\ud83d\ude00"]},'
    rb'"tag":"t\u00e9","node":"n\n","meta":{"k":null}},{"data":"}]}"},{"da\u0074a":[ ]}],"node":"N\/",'
    rb'"idempotency_key":"k\"","create":null,"config":{"durable":true},"disable_backpressure":true,'
    rb'"return_seqs":false}'
)


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """The body with a few bytes replaced."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body) - 1))
        piece = draw(st.one_of(st.binary(max_size=2), st.sampled_from(TOKENS)))
        body = body[:at] + piece + body[at + draw(st.integers(0, 2)) :]
    return body


damaged_bodies = damaged(COMPLETE)
