"""Small writes that are taken apart together: the same either way, and what each is alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.accelerated import WAYS, using
from topics.log.write.append_form import decode_append
from topics.log.write.append_request import check_append
from topics.log.write.batch import Batch
from topics.log.write.gather import gather

# Still so, and to be seen as such, with a byte gone wrong in it.
LONG_META = b'{"k":"%b"}' % (b"x" * 330)
DEEP = b"[" * 70 + b"]" * 70

blanks = st.sampled_from([b"", b"", b"", b" ", b"\n", b"\t\r\n "])
values = st.sampled_from(
    [b"1", b"-0.5e+3", b'"a b"', b'"\xc3\xa9"', b'{"a": [1, 2],\n"b":null}', b'"]}"', b'["\\u0000"]', DEEP]
) | st.sampled_from([b'"],\\"\\u0000\\",["', b'"\\n"', b'"\\ud83d\\ude00"'])
names = st.sampled_from(
    [b"null", b'"a"', b'""', b'"a b"', b'"%b"' % ("ä€" * 20).encode(), b'"%b"' % (b"x" * 128), b'"q\\""']
)
metas = st.sampled_from([b"null", b"{}", b'{"k": [1, 2]}', LONG_META])
wrong_values = st.sampled_from(
    [b"01", b'"\xff"', b'"\x01"', b'"\n"', b"", b'"a', b"1 2", b'"\\ud800"', b"[1,]"]
)
wrong_names = st.sampled_from([b"7", b'"%b"' % (b"x" * 257), b'"%b"' % ("€" * 43).encode(), b'"\\ud800"'])
wrong_metas = st.sampled_from([b"7", b"[]", b'"nul"', b"{"])


def parts(name: bytes, kinds: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(lambda value, blank: b'"%b"%b:%b%b' % (name, blank, blank, value), kinds, blanks)


details = [parts(b"tag", names), parts(b"node", names), parts(b"meta", metas)]
data = parts(b"data", values)


@st.composite
def records(draw: Any, first: st.SearchStrategy[bytes] = data) -> bytes:
    found = [draw(first)] + [draw(detail) for detail in details if draw(st.booleans())]
    return b"{%b}" % (draw(blanks) + b",").join(draw(st.permutations(found)))


wrong_parts = st.one_of(parts(b"data", wrong_values), parts(b"tag", wrong_names), parts(b"node", wrong_names))
wrong_parts |= st.one_of(parts(b"meta", wrong_metas), parts(b"tga", names))
wrong_records = st.one_of(
    records(parts(b"data", wrong_values)),
    st.lists(data | wrong_parts, max_size=3).map(b",".join).map(lambda inner: b"{%b}" % inner),
)


def bodies_of(
    several: st.SearchStrategy[list[bytes]], between: st.SearchStrategy[bytes]
) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda found, comma, blank, rest: (
            b'{%b"records"%b:[%b]%b%b}' % (blank, blank, comma.join(found), blank, rest)
        ),
        several,
        between,
        blanks,
        st.sampled_from([b"", b"", b',"create":false']),
    )


good_bodies = bodies_of(st.lists(records(), min_size=1, max_size=3), st.just(b","))
wrong_bodies = bodies_of(
    st.lists(records() | wrong_records, max_size=2), st.sampled_from([b",", b",", b"]["])
)
others = st.sampled_from(
    [b',"create":true', b',"create":null', b',"node":"n"', b',"x":[1]', b',"records":[]']
)
FRAGMENTS = [
    b'],"\\u0000",[',
    b',"\\u0000"',
    b"]",
    b"[",
    b"]}",
    b'{"records":[',
    b'"',
    b"\\",
    b",",
    b"\0",
    b"\n",
]


@st.composite
def broken_bodies(draw: Any) -> bytes:
    good = draw(good_bodies)
    at = draw(st.integers(0, len(good)))
    return bytes(good[:at] + draw(st.sampled_from(FRAGMENTS)) + good[at + draw(st.integers(0, 2)) :])


@st.composite
def halves(draw: Any) -> list[bytes]:
    """What would be one, two or three if the border between them were not seen."""
    whole = draw(good_bodies) + draw(st.sampled_from([b"", *FRAGMENTS])) + draw(good_bodies)
    at = draw(st.integers(0, len(whole)))
    return [whole[:at], whole[at:]]


any_bodies = st.one_of(
    good_bodies,
    wrong_bodies,
    broken_bodies(),
    st.builds(lambda good, other: good[:-1] + other + b"}", good_bodies, others),
    st.lists(st.sampled_from(FRAGMENTS), max_size=4).map(b"".join),
)
groups = st.builds(
    lambda before, between, after: before + between + after,
    st.lists(any_bodies, max_size=4),
    st.one_of(st.just([]), halves()),
    st.lists(good_bodies, max_size=4),
)


def columns(batch: Batch | None) -> Any:
    if batch is None:
        return None
    rows = bytes(batch.render(995, 7))
    meta_lens = None if batch.meta_lens is None else list(batch.meta_lens)
    return rows, batch.count, batch.size, list(batch.data_lens), meta_lens, batch.nodes, batch.tags


def gathered(bodies: list[bytes]) -> Any:
    found = gather(bodies)
    return columns(found.batch), found.counts, found.odd


def is_left_by_the_accelerator(body: bytes) -> bool:
    """Escapes in names or of halves of a pair, large metas, deep values, names that come twice."""
    twice = []

    def noted(pairs: list[tuple[str, Any]]) -> None:
        twice.append(len({name for name, _ in pairs}) < len(pairs))

    json.loads(body, object_pairs_hook=noted)
    return b"\\" in body or b"x" * 160 in body or b"[" * 35 in body or any(twice)


@settings(max_examples=400)
@example([b'{"records":[{"data":1}]},"\\u0000"', b'{"records":[{"data":[1, 2]}]}'])
@example([b'{"records":[{"data":1}]}],"\\u0000"', b',["\\u0000",[{"records":[{"data":[1, 2]}]}'])
@given(groups)
def test_they_are_the_same_either_way(bodies: list[bytes]) -> None:
    odd = []
    for native in WAYS.values():
        with using(native):
            odd.append({*gather(bodies).odd})
    in_python, otherwise = odd[0], odd[-1]
    assert in_python <= otherwise
    assert all(is_left_by_the_accelerator(bodies[index]) for index in otherwise - in_python)
    common = [body for index, body in enumerate(bodies) if index not in otherwise]
    found = []
    for native in WAYS.values():
        with using(native):
            found.append(gathered(common))
    assert found[0] == found[-1]
    assert found[0][2] == []


@settings(max_examples=400)
@given(groups)
def test_they_are_what_each_is_alone(bodies: list[bytes]) -> None:
    for native in WAYS.values():
        with using(native):
            found, counts, odd = gather(bodies)
            alone = [one for index, body in enumerate(bodies) if index not in odd for one in as_records(body)]
            taken = [len(as_records(body)) for index, body in enumerate(bodies) if index not in odd]
            assert (counts or [1] * len(taken)) == taken
            assert ([] if found is None else records_of(found)) == alone


def as_records(body: bytes) -> list[Any]:
    """A topic that is there takes nothing else from it, and its writer is told nothing else."""
    request = check_append(decode_append(body), len(body), None)
    assert request.create in (None, False)
    assert request.config is None
    assert request.return_seqs
    return records_of(request.batch)


def records_of(batch: Batch) -> list[Any]:
    nothing = [None] * batch.count
    rows = [json.loads(row, parse_float=str) for row in bytes(batch.render(1, 7)).splitlines()]
    payloads = [(row["data"], row.get("meta"), row.get("node")) for row in rows]
    metas = batch.meta_lens or [0] * batch.count
    columns = payloads, batch.data_lens, metas, batch.nodes or nothing, batch.tags or nothing
    return [*zip(*columns, strict=True)]


@given(st.lists(good_bodies, max_size=8))
def test_whatever_is_right_travels_without_the_accelerator(bodies: list[bytes]) -> None:
    with using(None):
        assert gather(bodies).odd == []


@pytest.mark.parametrize("native", WAYS.values(), ids=list(WAYS))
def test_as_many_records_as_the_limit_says_travel(native: Any) -> None:
    """No small write has as many."""
    full = b'{"records":[%b{"data":1}]}' % (b'{"data":1},' * 9_999)
    with using(native):
        assert gather([full, full]).counts == [10_000, 10_000]
        assert gather([full.replace(b"[", b'[{"data":2},'), full]).odd == [0]
