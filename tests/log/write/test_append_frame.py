"""What the journal holds of a batch says all that it was, whoever has made it."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.support.plain_frames import TS, frame_of
from topics.log.write import append_frame
from topics.log.write.append_frame import decode_payload, encode_payload, plain_parts
from topics.log.write.append_request import parse_append
from topics.storage.frame import HEADER_BYTES
from topics.values import accelerator

pytestmark = pytest.mark.usefixtures("both_ways")

DETAILS = ({"meta": {"k": 1}}, {"tag": "t"}, {"node": "n"})


@pytest.mark.parametrize("present", [*product([False, True], repeat=3)], ids=str)
@pytest.mark.parametrize("hops", [None, b"\x01\x02"], ids=str)
@pytest.mark.parametrize("keys", [b"", b"keys"], ids=str)
@pytest.mark.parametrize("copied_bytes", [0, 1 << 20])
def test_a_payload_gives_back_what_went_into_it(
    monkeypatch: pytest.MonkeyPatch,
    present: tuple[bool, ...],
    hops: bytes | None,
    keys: bytes,
    copied_bytes: int,
) -> None:
    monkeypatch.setattr(append_frame, "_COPIED_BYTES", copied_bytes)
    second: dict[str, Any] = {"data": "x"}
    for is_there, detail in zip(present, DETAILS, strict=True):
        second |= detail if is_there else {}
    batch = parse_append(json.dumps({"records": [{"data": 1}, second]}).encode()).batch
    rows = batch.render(5, 6)
    payload, flags = encode_payload(batch, rows, hops, keys)
    whole = b"".join(payload) if isinstance(payload, tuple) else bytes(payload)
    assert whole.startswith(keys)
    stored, same_rows, same_hops = decode_payload(memoryview(whole)[len(keys) :], 2, flags)
    assert (same_rows, same_hops) == (bytes(rows), hops)
    assert list(stored.data_lens) == [1, 3]
    has_meta, has_tag, has_node = present
    assert stored.meta_lens == ([0, 7] if has_meta else None)
    assert stored.tags == ([None, "t"] if has_tag else None)
    assert stored.nodes == ([None, "n"] if has_node else None)
    assert stored.size == batch.size


@pytest.mark.parametrize("first_seq", [1, 8, 95, 998, 1000, 99_990, 2**53 - 30])
@pytest.mark.parametrize("count", [1, 3, 7, 8, 20, 100])
def test_rows_of_a_plain_frame_lie_where_they_are_said_to_lie(first_seq: int, count: int) -> None:
    bodies = [b'{"records":[{"data":%d}]}' % 10 ** (at % 5) for at in range(count)]
    made = frame_of(accelerator.native, bodies, first_seq)
    assert made is not None
    rows = [b'{"$seq":%d,"$ts":%d,"data":%d}\n' % (first_seq + at, TS, 10 ** (at % 5)) for at in range(count)]
    assert made.rows == b"".join(rows)
    assert made.ends == [77 + sum(map(len, rows[: at + 1])) for at in range(count)]
    found, lengths = plain_parts(memoryview(made.frame)[HEADER_BYTES:], count)
    assert found == b"".join(rows)
    assert [*lengths.cast("I")] == [1 + at % 5 for at in range(count)]
    assert made.size == sum(lengths.cast("I"))


@pytest.mark.parametrize("odd", [b'{"records":[{"data":1,"tag":"t"}]}', b'{"records":[]}', b"x"])
def test_what_is_not_plain_has_no_plain_frame(odd: bytes) -> None:
    assert frame_of(accelerator.native, [b'{"records":[{"data":1}]}', odd], 1) is None
