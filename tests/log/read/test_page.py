"""Pages: as many records as limit and budget allow, whether sizes had to be counted for it or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import Lab, records

# Runs of four: seqs cross from one digit to two inside the third, and one record is larger than most budgets.
SIZES = [3, 2, 5, 3, 2, 90, 2, 3, 4, 2, 7, 3, 3]


def expected(alive: list[int], limit: int, max_bytes: int) -> list[int]:
    """One by one: a record that does not fit ends the page, unless it is the first."""
    page: list[int] = []
    for seq in alive[:limit]:
        max_bytes -= SIZES[seq - 1]
        if max_bytes < 0 and page:
            break
        page.append(seq)
        if max_bytes < 0:
            break
    return page


@pytest.mark.parametrize("deleted", [[], [2, 3, 9], [1, 5, 6, 7, 8, 13]], ids=str)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_page_holds_what_fits(tmp_path: Path, deleted: list[int], sealed: bool) -> None:
    lab = Lab(tmp_path, hot_bytes=1 if sealed else 1 << 20)
    for seq, size in enumerate(SIZES, 1):
        lab.write("t", {"data": "x" * (size - 2), "tag": f"seq-{seq}"})
    for seq in deleted:
        lab.delete("t", match=f"seq-{seq}")
    if sealed:
        lab.checkpoint(everything=True)
    alive = [seq for seq in range(1, len(SIZES) + 1) if seq not in deleted]
    for from_seq in range(max(lab.topic("t").floor - 1, 0), len(SIZES)):
        for limit in (1, 2, 3, 5, 8, 100):
            for max_bytes in (1, 5, 6, 10, 40, 100, 200, 1000):
                page = lab.diff("t", from_seq, limit, max_bytes)
                found = [record["$seq"] for record in records(page)]
                wanted = expected([seq for seq in alive if seq > from_seq], limit, max_bytes)
                assert found == wanted, (from_seq, limit, max_bytes)
                assert set(alive).isdisjoint(set(range(from_seq + 1, page.next_from_seq + 1)) - {*found})
