"""Pages: as many records as limit and budget allow, whether sizes had to be counted for it or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab, records, seqs
from topics.log import read_page

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
def test_a_page_holds_what_fits(make_lab: Callable[..., Lab], deleted: list[int], sealed: bool) -> None:
    lab = make_lab(hot_bytes=1 if sealed else 1 << 20)
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


def test_the_walk_stops_with_the_last_allowed_record(lab: Lab) -> None:
    for node in ("far", "far", "own"):
        lab.write("t", 0, node=node)
    page = lab.diff("t", limit=2, nodes=frozenset(["own"]))
    assert seqs(page) == [1, 2]
    assert (page.next_from_seq, page.caught_up, page.lag) == (2, False, 1)
    page = lab.diff("t", 2, limit=2, nodes=frozenset(["own"]))
    assert (page.rows, page.next_from_seq, page.caught_up) == (b"", 3, True)


def test_the_budget_does_not_examine_what_it_refuses(lab: Lab) -> None:
    lab.write("t", "aaaa", {"data": "own", "node": "own"}, "bbbbbbbb", "c")
    page = lab.diff("t", max_bytes=10, nodes=frozenset(["own"]))
    assert seqs(page) == [1]
    assert (page.next_from_seq, page.caught_up) == (2, False)
    page = lab.diff("t", 2, max_bytes=1)
    assert seqs(page) == [3], "one over-sized record is delivered alone"


def test_a_page_goes_no_further_than_it_was_asked_to(lab: Lab) -> None:
    lab.write_each("t", 6)
    topic = lab.topic("t")

    def upto(seq: int, cursor: int = 0) -> tuple[list[int], int]:
        page = read_page(lab.engine, topic, cursor, 100, 1 << 20, upto=seq)
        return seqs(page), page.next_from_seq

    assert upto(4) == ([1, 2, 3, 4], 4)
    assert upto(99) == ([1, 2, 3, 4, 5, 6], 6)
    # Never back.
    assert upto(2, cursor=3) == ([], 3)
