"""What a write has to find before it gets its seqs: room, and seqs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab
from topics.values.errors import ApiError
from topics.values.settings import MAX_SEQ


def test_what_has_aged_makes_room_in_the_quota_of_the_server(tmp_path: Path) -> None:
    lab = Lab(tmp_path, max_total_bytes=10)
    lab.put("aging", ttl_ms=100)
    lab.write("aging", 12345678)
    with pytest.raises(ApiError) as caught:
        lab.write("t", 12345678)
    assert caught.value.detail == {"limit": "max_total_bytes", "max": 10}
    lab.clock.advance(101)
    assert lab.write("t", 12345678).first_seq == 1


def test_the_last_seq_is_the_last(tmp_path: Path) -> None:
    lab = Lab(tmp_path, seq_base=MAX_SEQ - 1)
    assert lab.write("t", 1, 2).last_seq == MAX_SEQ
    with pytest.raises(ApiError, match="used up its seqs"):
        lab.write("t", 3)
    assert lab.seqs("t") == [MAX_SEQ - 1, MAX_SEQ]
    lab.restart()
    assert lab.seqs("t") == [MAX_SEQ - 1, MAX_SEQ]
