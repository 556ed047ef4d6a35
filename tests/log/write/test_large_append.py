"""A large write is decoded in pieces: it means what it means in one go, and fails for the same reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.harness import Lab, records
from tests.support.accelerated import WAYS, using
from topics.log.write import large_append, large_json
from topics.log.write.append_frame import encode_payload
from topics.log.write.append_request import AppendRequest, parse_append
from topics.log.write.large_append import LargeBatch, large_request
from topics.values.errors import ApiError
from topics.values.misnamed import Misnamed
from topics.values.settings import MAX_RECORD_BYTES

RECORDS: list[dict[str, Any]] = [
    {"data": {"a": [1, {"b": "},{"}]}},
    {"data": None, "tag": "t"},
    {"data": "x", "node": "n", "meta": {"k": "v"}},
    {"data": 4, "meta": None},
    {"data": [], "tag": None},
    {"data": "é"},
]


class Someone:
    def __init__(self) -> None:
        self.misnamed: Misnamed | None = None

    def note(self, misnamed: Misnamed) -> None:
        self.misnamed = misnamed


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "PIECE_BYTES", 20)


def in_pieces(body: bytes, key: bytes | None = None) -> AppendRequest:
    request, _ = large_request(body, key, Someone())
    assert isinstance(request.batch, LargeBatch)
    return request


def refusal(body: bytes) -> tuple[str, str]:
    with pytest.raises(ApiError) as caught:
        large_request(body, None, Someone())
    return caught.value.code, caught.value.message


def body_of(*written: Any, **more: Any) -> bytes:
    return json.dumps({"records": written, **more}).encode()


def assert_same(request: AppendRequest, expected: AppendRequest) -> None:
    rows = expected.batch.render(998, 5)
    assert request.batch.render(998, 5) == rows
    assert encode_payload(request.batch, rows) == encode_payload(expected.batch, rows)
    assert request.batch.row_ends(rows).tolist() == expected.batch.row_ends(rows).tolist()
    assert (request.batch.count, request.batch.size) == (expected.batch.count, expected.batch.size)
    assert (request.return_seqs, request.config) == (expected.return_seqs, expected.config)
    assert request.idempotency_key == expected.idempotency_key


@pytest.mark.parametrize("more", [{}, {"node": "all"}, {"return_seqs": False}, {"config": {"ttl_ms": 5}}])
@pytest.mark.parametrize("written", [RECORDS, RECORDS[:1] * 9, [{"data": n} for n in range(50)]])
def test_it_is_the_same_write(written: list[dict[str, Any]], more: dict[str, Any]) -> None:
    body = body_of(*written, **more)
    assert_same(in_pieces(body), parse_append(body))


@pytest.mark.parametrize("native", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("data", ["x", "é", "blank ,"])
def test_compact_records_are_cut_at_once_where_there_is_an_accelerator(
    native: Any, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [*RECORDS[:-1], *[{"data": [data] * 9}] * 9000]
    body = json.dumps({"records": written}, separators=(",", ":"), ensure_ascii=False).encode()
    monkeypatch.setattr(large_json, "PIECE_BYTES", 1 << 18)
    with using(native):
        assert_same(in_pieces(body, b"k"), parse_append(body, b"k"))
        if native is not None and data.isascii():
            monkeypatch.delattr(large_append, "cut_out")
            in_pieces(body)


def test_it_may_have_a_key() -> None:
    body = body_of(*RECORDS, idempotency_key="k")
    assert in_pieces(body).idempotency_key == parse_append(body).idempotency_key
    assert in_pieces(body_of(*RECORDS), b"h").idempotency_key == b"h"


def test_it_may_be_patient() -> None:
    assert large_request(body_of(*RECORDS, disable_backpressure=True), None, Someone())[1]
    assert not large_request(body_of(*RECORDS), None, Someone())[1]


def test_what_is_wrong_is_told_where_it_is() -> None:
    fine = [{"data": n} for n in range(20)]
    assert refusal(body_of(*fine, {"tag": "t"})) == ("invalid_request", "records[20]: data is required")
    assert "records[20].tag" in refusal(body_of(*fine, {"data": 1, "tag": 5}))[1]
    long = {"data": "x" * MAX_RECORD_BYTES}
    code, message = refusal(body_of(*fine, long))
    assert (code, message.partition(":")[0]) == ("record_too_large", "records[20]")


def test_too_many_are_not_decoded() -> None:
    assert refusal(body_of(*[0] * 10_001))[0] == "batch_too_large"


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"data":1},]}',
        b'{"records":[{"data":1},,{"data":2}]}',
        b'{"records":[{"data":1}}',
        b'{"records":[{"data":1]}]}',
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":1 2}]}',
        b'{"records":[{"data":1}]}{}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[]}',
        b"{}",
    ],
)
def test_what_is_no_write_is_refused(body: bytes) -> None:
    assert refusal(body)[0] == "invalid_request"


def test_names_that_do_not_belong_are_told() -> None:
    someone = Someone()
    large_request(body_of(*RECORDS, {"data": 1, "tga": "t"}, recods=[]), None, someone)
    assert someone.misnamed is not None
    someone = Someone()
    large_request(body_of({"data": 1, "tga": "t"}, *RECORDS), None, someone)
    assert someone.misnamed is not None
    assert someone.misnamed.did_you_mean == {"tga": "tag"}


def test_the_same_array_twice_is_told() -> None:
    someone = Someone()
    large_request(b'{"records":[{"data":1}],"records":[{"data":2}]}', None, someone)
    assert someone.misnamed is not None
    assert someone.misnamed.duplicate == ["records"]


def test_what_was_rendered_ahead_is_used_if_it_came_true(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write("t", 1)
    request = in_pieces(body_of(*RECORDS))
    batch = request.batch
    assert isinstance(batch, LargeBatch)
    ahead = lab.engine.now()
    batch.prepare(2, ahead, ahead)
    lab.clock.advance(7)
    lab.engine.append("t", request, lambda _: None, lambda _: None)
    lab.engine.queue.flush()
    assert [row["$ts"] for row in records(lab.diff("t", 1))] == [ahead] * len(RECORDS)


def test_and_rendered_anew_if_not(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    request = in_pieces(body_of(*RECORDS))
    batch = request.batch
    assert isinstance(batch, LargeBatch)
    batch.prepare(1, lab.engine.now(), lab.engine.now())
    lab.write("t", 1)
    lab.engine.append("t", request, lambda _: None, lambda _: None)
    lab.engine.queue.flush()
    assert lab.seqs("t") == list(range(1, len(RECORDS) + 2))
    lab.restart()
    assert lab.seqs("t") == list(range(1, len(RECORDS) + 2))


class Tolerant(Someone):
    """One for whom an unknown name is no reason to refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.noted = 0

    def note(self, misnamed: Misnamed) -> None:
        self.noted += 1


class Strict(Tolerant):
    def note(self, misnamed: Misnamed) -> None:
        super().note(misnamed)
        self.misnamed = misnamed


def test_an_unknown_name_ends_the_write_only_where_it_is_refused_for_it() -> None:
    body = body_of(*[{"data": number, "tga": 1} for number in range(6)])
    tolerant, strict = Tolerant(), Strict()
    request, _ = large_request(body, None, tolerant)
    assert (request.batch.count, tolerant.noted) == (6, 6)
    large_request(body, None, strict)
    assert strict.noted == 1


@pytest.mark.parametrize("native", WAYS.values(), ids=list(WAYS))
def test_only_what_is_one_piece_is_rendered_at_once(native: Any) -> None:
    with using(native):
        plain = in_pieces(b'{"records":[{"data":1},{"data":2}]}').batch
        assert plain.is_quick == (native is not None)
        assert not in_pieces(body_of(*RECORDS)).batch.is_quick
