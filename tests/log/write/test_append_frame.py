"""What the journal holds of a batch says all that it was, whoever has made it."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from topics.log.write import append_frame
from topics.log.write.append_frame import decode_payload, encode_payload
from topics.log.write.append_request import parse_append

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
