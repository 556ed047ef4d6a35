"""A cap in bytes takes as many of the oldest as it must, however it looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab

SIZES = [3, 2, 5, 3, 2, 9, 2, 3, 4, 2, 7, 3]


@pytest.mark.parametrize("run_records", [4, 100])
@pytest.mark.parametrize("step", [1, 2, 7, 20])
@pytest.mark.parametrize("deleted", [0, 4])
def test_a_byte_cap_takes_no_more_than_it_must(
    tmp_path: Path, run_records: int, step: int, deleted: int
) -> None:
    lab = Lab(tmp_path, segment_max_events=run_records)
    for size in SIZES:
        lab.write("t", {"data": "x" * (size - 2), "tag": f"size-{size}"})
    lab.delete("t", match=f"size-{deleted}")
    left = [(seq, size) for seq, size in enumerate(SIZES, 1) if size != deleted]
    for cap in range(sum(size for _, size in left), 0, -step):
        lab.put("t", cap_bytes=cap)
        while sum(size for _, size in left) > cap:
            del left[0]
        assert lab.seqs("t", lab.topic("t").floor - 1) == [seq for seq, _ in left], cap
        assert lab.topic("t").live_bytes == sum(size for _, size in left)
