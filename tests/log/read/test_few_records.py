"""A few records of a run in memory, without its columns: what the columns would have said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.appending import rows_of
from topics.log.read.render import FEW, few_records
from topics.log.run import HotColumns, Run

UNLIMITED = 1 << 30
# Text that looks like the parts of a row.
DATA = st.sampled_from([b"1", b'"x"', b'"\\"data\\":1,\\"meta\\":{"', b'{"a":[1,2]}'])
META = st.sampled_from([None, b'{"k":1}', b'{"m":"}"}'])
NAME = st.sampled_from([None, "n", "other"])
# Data, meta, node, tag.
ROW = st.tuples(DATA, META, NAME, NAME)
PLAIN_ROW = st.tuples(DATA, st.none(), st.none(), st.none())
# Some written together, at a time that may have more digits than the one before; forwarded, or not.
BATCH = st.tuples(
    st.lists(ROW, min_size=1, max_size=4) | st.lists(PLAIN_ROW, min_size=1, max_size=4),
    st.sampled_from([0, 1, 90]),
    st.sampled_from([None, 1, 3]),
)


def run_of(base: int, rows: list[bytes]) -> Run:
    run = Run(1, base, HotColumns(base))
    run.extend(rows_of(rows, base, 5))
    return run


@given(
    base=st.sampled_from([1, 8, 97, 12345]),
    batches=st.lists(BATCH, min_size=1, max_size=4),
    closed=st.booleans(),
    choice=st.data(),
)
def test_they_are_what_the_columns_say(
    base: int,
    batches: list[tuple[list[tuple[bytes, bytes | None, str | None, str | None]], int, int | None]],
    closed: bool,
    choice: st.DataObject,
) -> None:
    run, ts = Run(1, base, HotColumns(base)), 5
    hot = run.hot
    assert hot is not None
    for rows, later, hops in batches:
        ts += later
        data, metas, nodes, tags = (list(column) for column in zip(*rows, strict=True))
        hop_counts = None if hops is None else bytes([hops] * len(rows))
        first_seq = base + run.count
        run.extend(rows_of(data, first_seq, ts, metas=metas, nodes=nodes, tags=tags, hops=hop_counts))
    if closed:
        hot.close()
    start = choice.draw(st.integers(0, run.count - 1))
    stop = choice.draw(st.integers(start + 1, min(start + FEW, run.count)))
    found = few_records(run, start, stop, UNLIMITED)
    view = hot.view()
    expected = view.records(np.arange(start, stop))
    assert found is not None
    assert (found.seqs.tolist(), found.seqs.dtype) == (expected.seqs.tolist(), np.int64)
    assert (found.data, found.metas, found.names) == (expected.data, expected.metas, expected.names)
    assert (found.hops is None) == (expected.hops is None)
    assert found.hops is None or found.hops.tolist() == expected.hops.tolist()  # type: ignore[union-attr]
    assert found.size == expected.size == int(view.sizes(start, stop).sum())


def test_they_do_not_keep_their_run_from_growing() -> None:
    run = run_of(1, [b"1", b"2"])
    found = few_records(run, 0, 2, UNLIMITED)
    run.extend(rows_of([b"3"], 3, 5, hops=bytes([1])))
    again = few_records(run, 0, 3, UNLIMITED)
    run.extend(rows_of([b"4"], 4, 5))
    assert found is not None
    assert again is not None
    assert (found.data, again.data) == ([b"1", b"2"], [b"1", b"2", b"3"])


def test_many_are_asked_of_the_columns() -> None:
    run = run_of(1, [b"1"] * (FEW + 1))
    assert few_records(run, 0, FEW + 1, UNLIMITED) is None
    assert few_records(run, 1, FEW + 1, UNLIMITED) is not None


@pytest.mark.parametrize("start", [0, 1])
def test_rows_of_more_bytes_are_left_to_the_columns(start: int) -> None:
    run = run_of(1, [b"1", b"2222"])
    assert run.hot is not None
    row_bytes = run.hot.ends[1] - (run.hot.ends[0] if start else 0)
    assert few_records(run, start, 2, row_bytes) is not None
    assert few_records(run, start, 2, row_bytes - 1) is None
