"""Runs in memory: room made ahead of need changes where rows lie, and nothing else.

Lengths of data are kept only where they cannot be told from the rows, and offsets of a complete run in fewer
bytes; nobody who asks for them can see a difference.
"""

from __future__ import annotations

import json
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.harness import Lab
from tests.support.appending import rows_of
from topics.codec import StoredRows
from topics.log.run import _LARGE_ROWS, HotColumns, Run
from topics.ops.check_files import column_findings
from topics.storage.segment import DEAD, LIVE

pytestmark = pytest.mark.usefixtures("both_codecs")

# Four of these make a run large enough for the next one to be given room.
LARGE = "x" * 20_000


def hot(lab: Lab) -> HotColumns:
    columns = lab.topic("t").runs[-1].hot
    assert columns is not None
    return columns


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.write("t", *[LARGE] * 4)
    lab.write("t", LARGE)
    assert len(hot(lab).rows) > hot(lab).size, "there is room"
    return lab


@pytest.mark.parametrize("deleted", [[], [2, 4]])
def test_the_beginning_of_a_run_knows_which_of_its_records_are_deleted(lab: Lab, deleted: list[int]) -> None:
    topic = lab.topic("t")
    if deleted:
        assert lab.delete("t", seqs=deleted) == 2
    whole = topic.runs[0]
    short = Run(topic.id, whole.base, None, start_position=0, framed=False)
    short.fill(topic.store.columns(whole), 3, whole.dead, topic.floor)
    live = [1, 3] if deleted else [1, 2, 3]
    assert [seq for seq in (1, 2, 3) if short.live_between(seq - 1, seq)] == live
    size = whole.live_bytes // whole.live_count
    found = (short.count, short.live_count, short.dead_count, short.live_bytes)
    assert found == (3, len(live), 3 - len(live), len(live) * size)


@pytest.mark.parametrize("room", [0, 1000])
def test_what_is_taken_back_leaves_its_room(room: int) -> None:
    columns = HotColumns(1, room)
    for first in (1, 3):
        columns.extend(rows_of([b"1", b"2"], first, 5))
    weight = columns.weight
    assert columns.truncate(2) == weight - columns.weight
    columns.extend(rows_of([b"1", b"2"], 3, 5))
    assert columns.weight == weight
    rows = bytes(columns.view().rows).splitlines()
    assert [row[8:9] for row in rows] == [b"1", b"2", b"3", b"4"]
    assert np.array_equal(columns.view().ends, np.cumsum([len(row) + 1 for row in rows]))


# --- lengths that follow from the rows ----------------------------------------------------------------------

PLAIN = [b"1", b'"two"', b"[3,3,3]"]


@pytest.mark.parametrize("first", [1, 8, 97, 10**15 - 2], ids=str)
@pytest.mark.parametrize("ts", [0, 7, 1_700_000_000_000])
def test_plain_rows_tell_how_long_their_data_is(first: int, ts: int) -> None:
    columns = HotColumns(first)
    columns.extend(rows_of(PLAIN, first, ts))
    assert columns.data_lens is None, "nothing is kept"
    assert columns.view().data_lens.tolist() == [1, 5, 7]
    assert [columns.size_between(index, index + 1) for index in range(3)] == [1, 5, 7]
    assert columns.size_of(np.array([0, 2])) == 8
    assert list(column_findings(columns.view())) == []


texts = st.integers(0, 10**9).map(lambda number: b"%d" % number)
batches = st.tuples(
    st.lists(texts, min_size=1, max_size=5),
    st.sampled_from(["plain", "plain", "plain", "tags", "nodes", "metas"]),
    st.sampled_from([0, 0, 1, 3, 90, 10**6]),
    st.booleans(),
)


@given(st.sampled_from([1, 5, 95, 99_990]), st.lists(batches, min_size=1, max_size=8), st.data())
def test_lengths_and_offsets_are_true_whatever_came_before(
    base: int, written: list[tuple[list[bytes], str, int, bool]], draw: st.DataObject
) -> None:
    columns, ts = HotColumns(base), draw.draw(st.sampled_from([0, 8, 99, 999_999]))
    truth: list[tuple[bytes, int]] = []
    rows = b""
    for data, kind, later, closed in written:
        ts += later
        extra = [b"{}" if kind == "metas" else 'é"n', *[None] * (len(data) - 1)]
        added = rows_of(data, base + len(truth), ts, **({} if kind == "plain" else {kind: extra}))
        rows += bytes(added.text)
        columns.extend(added)
        truth += [(text, len(text) + 2 * (kind == "metas" and not at)) for at, text in enumerate(data)]
        if closed:
            columns.close()
    count = draw.draw(st.sampled_from([len(truth), draw.draw(st.integers(1, len(truth)))]))
    if count < len(truth):
        columns.truncate(count)
        truth, rows = truth[:count], b"".join(rows.splitlines(keepends=True)[:count])
    view = columns.view()
    assert bytes(view.rows) == rows
    assert view.data_lens.tolist() == [len(text) for text, _ in truth]
    assert view.sizes().tolist() == [size for _, size in truth]
    assert [columns.size_between(index, index + 1) for index in range(count)] == [size for _, size in truth]
    start = draw.draw(st.integers(0, count - 1))
    stop = draw.draw(st.integers(start + 1, count))
    assert columns.size_between(start, stop) == sum(size for _, size in truth[start:stop])
    assert columns.size_of(np.arange(start, stop)) == columns.size_between(start, stop)
    assert columns.view().sizes(start, stop).tolist() == [size for _, size in truth[start:stop]]
    assert columns.view().sizes(count).tolist() == []
    assert [json.loads(row)["data"] for row in rows.splitlines()] == [int(text) for text, _ in truth]
    assert list(column_findings(view)) == []


def plain(hot: HotColumns, size: int, ts: int = 1000) -> None:
    """Add one row of this size."""
    hot.extend(StoredRows(b"x" * (size - 1) + b"\n", bytes(4), 1, ts))


def test_rows_that_fill_their_room_exactly_stay_in_it() -> None:
    hot = HotColumns(1, 10)
    plain(hot, 4)
    assert not hot.has_to_move(6)
    assert hot.has_to_move(7)
    plain(hot, 6)
    assert type(hot.rows) is memoryview
    plain(hot, 1)
    assert type(hot.rows) is bytearray
    assert not hot.has_to_move(1000)
    assert bytes(hot.rows) == b"xxx\nxxxxx\n\n"


@pytest.mark.parametrize(("less", "room"), [(0, _LARGE_ROWS + _LARGE_ROWS // 8), (1, 0)])
def test_room_is_made_for_what_follows_a_large_run(less: int, room: int) -> None:
    hot = HotColumns(1)
    plain(hot, _LARGE_ROWS - less)
    assert hot.room_for_next == room


def test_a_run_depends_on_the_first_of_its_frames() -> None:
    run = Run(1, 1, HotColumns(1), start_position=50)
    for position, first in ((80, 50), (20, 20)):
        run.depend_on(position)
        assert run.start_position == first


def test_where_rows_begin_and_end_is_the_same_of_a_complete_run() -> None:
    hot = HotColumns(1)
    for size in (3, 4, 5):
        plain(hot, size)
    before = hot.edges(1, 3).tolist()
    hot.close()
    assert hot.edges(1, 3).tolist() == before == [3, 7, 12]


def test_marks_are_loaded_where_there_are_some_and_not_yet() -> None:
    run = Run(1, 1, None, count=3)
    run.seal(1, array("I"))
    flags = np.array([LIVE, DEAD, LIVE], np.uint8)
    assert run.load_marks(flags)
    assert run.dead is None, "none was deleted"
    run.dead_count = 1
    assert run.load_marks(flags)
    assert run.dead == bytearray((0, 1, 0))
    run.dead[0] = 1
    assert run.load_marks(flags)
    assert run.dead == bytearray((1, 1, 0)), "those in memory know more"


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_marks_of_a_run_in_memory_are_nowhere_else(is_in_memory: bool) -> None:
    run = Run(1, 1, HotColumns(1) if is_in_memory else None, dead=bytearray(3))
    run.unload_marks()
    assert (run.dead is not None) is is_in_memory
