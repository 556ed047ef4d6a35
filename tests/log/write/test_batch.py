"""What a batch knows about its rows without looking at them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.log.write.append_request import parse_append
from topics.log.write.batch import batch_from_columns, row_ends
from topics.values.errors import ApiError

pytestmark = pytest.mark.usefixtures("both_ways")

MIB = 1024 * 1024


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=120),
    first_seq=st.sampled_from([1, 5, 9, 10, 95, 99, 990, 12_345, 99_990]),
    node=st.sampled_from(["", ',"node":"n"', ',"meta":{"k":1}']),
)
@example([0, *[1] * 18, 0], 12_345, ',"node":"n"')
@example([0, *[1] * 18, 0], 12_345, ',"meta":{"k":1}')
def test_rows_end_where_their_newlines_are(sizes: list[int], first_seq: int, node: str) -> None:
    records = ",".join(f'{{"data":"{"x" * size}"{node if size % 2 else ""}}}' for size in sizes)
    batch = parse_append(f'{{"records":[{records}]}}'.encode()).batch
    rows = batch.render(first_seq, 1_760_011_200_450)
    assert batch.row_ends(rows).tolist() == row_ends(rows, len(sizes)).tolist()


@pytest.mark.parametrize("count", [1, 7, 8, 9])
@pytest.mark.parametrize("first_seq", [1, 999, 1000, 1001, 99_995])
@pytest.mark.parametrize("more", [{}, {"node": "n"}, {"meta": {"k": 1}}], ids=str)
def test_rows_say_all_that_there_is_to_say(count: int, first_seq: int, more: dict[str, Any]) -> None:
    body = {"records": [{"data": number} | (more if number % 2 else {}) for number in range(count)]}
    rows = bytes(parse_append(json.dumps(body).encode()).batch.render(first_seq, 5))
    assert [json.loads(row) for row in rows.splitlines()] == [
        {"$seq": first_seq + number, "$ts": 5}
        | ({"$node": more["node"]} if number % 2 and "node" in more else {})
        | {"data": number}
        | ({"meta": more["meta"]} if number % 2 and "meta" in more else {})
        for number in range(count)
    ]


@pytest.mark.parametrize("metas", [None, [None, None], [b'{"k":1}', None]], ids=str)
@pytest.mark.parametrize("names", [None, [None, None], [None, "n"]], ids=str)
def test_columns_that_hold_nothing_are_not_there(
    metas: list[bytes | None] | None, names: list[str | None] | None
) -> None:
    for nodes, tags in ((names, None), (None, names)):
        batch = batch_from_columns([b"1", b"[2]"], metas, nodes, tags)
        assert batch.meta_lens == ([7, 0] if metas and any(metas) else None)
        assert batch.nodes == (nodes if nodes and any(nodes) else None)
        assert batch.tags == (tags if tags and any(tags) else None)
        assert batch.size == 4 + (7 if metas and any(metas) else 0)
        first, second = map(json.loads, bytes(batch.render(1, 5)).splitlines())
        assert first == {"$seq": 1, "$ts": 5, "data": 1} | (
            {"meta": {"k": 1}} if metas and any(metas) else {}
        )
        assert second == {"$seq": 2, "$ts": 5, "data": [2]} | ({"$node": "n"} if nodes and any(nodes) else {})


def refusal(body: dict[str, Any], key: bytes | None = None) -> tuple[str, str]:
    with pytest.raises(ApiError) as caught:
        parse_append(json.dumps(body).encode(), key)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    ("records", "code", "what"),
    [
        ([], "invalid_request", "records must be an array"),
        ([{"data": 1}] * 10_001, "batch_too_large", "at most 10000"),
        ([{"data": 1}, {}], "invalid_request", "records[1]: data is required"),
        ([{"data": 1}, {"data": "x" * MIB}], "record_too_large", "records[1]"),
        ([{"data": "x" * (MIB - 10), "meta": {"k": "x" * 20}}], "record_too_large", "records[0]"),
        ([{"data": 1, "tag": "x" * 257}], "invalid_request", "records[0].tag"),
        ([{"data": 1, "tag": "ä" * 129}], "invalid_request", "records[0].tag"),
        ([{"data": 1, "tag": "𝄞" * 65}], "invalid_request", "records[0].tag"),
        ([{"data": 1}, {"data": 1, "node": "x" * 129}], "invalid_request", "records[1].node"),
        ([{"data": 1}, {"data": 1, "node": "𝄞" * 33}], "invalid_request", "records[1].node"),
        ([{"data": 1, "tag": "t"}, {"tag": "x" * 65}], "invalid_request", "records[1]: data is required"),
        ([{"data": 1, "meta": [1]}], "invalid_request", "records[0].meta must be an object"),
        ([{"data": 1, "meta": {"k": "x" * 16_384}}], "invalid_request", "records[0].meta must be at most"),
        ([{"data": 1, "meta": {str(n): n for n in range(65)}}], "invalid_request", "records[0].meta"),
        # The first record that is refused says why.
        ([{"data": 1, "tag": "x" * 257}, {"data": "x" * MIB}], "invalid_request", "records[0].tag"),
        ([{"data": "x" * MIB}, {"tag": "x"}], "record_too_large", "records[0]"),
        ([{"data": "x" * (MIB - 2)}, {"tag": "x"}], "invalid_request", "records[1]: data is required"),
    ],
)
def test_what_is_refused(records: list[dict[str, Any]], code: str, what: str) -> None:
    found, message = refusal({"records": records})
    assert found == code
    assert what in message


@pytest.mark.parametrize(
    "records",
    [
        [{"data": 1}] * 10_000,
        [{"data": "x" * (MIB - 2)}],
        [{"data": "x" * (MIB - 2 - 10), "meta": {"k": 1234}}],
        [{"data": 1, "tag": "x" * 256}],
        [{"data": 1, "tag": "ä" * 128}],
        [{"data": 1, "tag": "𝄞" * 64}, {"data": 1, "tag": "x" * 65}],
        [{"data": 1, "node": "x" * 128}],
        [{"data": 1, "node": "𝄞" * 32}, {"data": 1, "node": "x" * 33}],
        [{"data": 1, "meta": {"k": "x" * (16_384 - 8)}}],
        [{"data": 1, "meta": {f"key-{n}": n for n in range(64)}}],
    ],
    ids=lambda records: str(records)[:40],
)
def test_what_just_fits_is_taken(records: list[dict[str, Any]]) -> None:
    body = json.dumps({"records": records}, ensure_ascii=False, separators=(",", ":")).encode()
    batch = parse_append(body).batch
    assert batch.count == len(records)
    for names, kind in ((batch.tags, "tag"), (batch.nodes, "node")):
        assert (names or [None] * batch.count) == [record.get(kind) for record in records]


def test_a_key_may_be_too_long_wherever_it_comes_from() -> None:
    body = {"records": [{"data": 1}]}
    for code, message in (
        refusal(body | {"idempotency_key": "x" * 257}),
        refusal(body, b"x" * 257),
        refusal(body | {"node": "x" * 129}),
    ):
        assert code == "invalid_request"
        assert "at most" in message
    assert parse_append(json.dumps(body).encode(), b"k").idempotency_key == b"k"
    both = body | {"idempotency_key": "mine"}
    assert parse_append(json.dumps(both).encode(), b"k").idempotency_key == b"mine"


@pytest.mark.parametrize("rest", [b"", b"}", b",", b"], oops", b"," + b"[" * 5000, b',{"data":"\x00"}]}'])
def test_a_wrong_type_ahead_of_broken_json_is_a_plain_refusal(rest: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_append(b'{"records":[{"data":1,"tag":5}' + rest)
    assert caught.value.code == "invalid_request"
