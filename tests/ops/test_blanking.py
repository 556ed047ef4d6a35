"""Blanks: nothing of a record is left but its place."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.storage.support import FS, columns
from topics.ops.check_files import column_findings
from topics.ops.purge_segments import blanked, is_blank
from topics.storage.segment import Segment, SegmentWriter, file_name


def mask(count: int, *gone: int) -> np.ndarray:
    marks = np.zeros(count, bool)
    marks[list(gone)] = True
    return marks


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("gone", [(), (0,), (3,), (1, 2), (0, 3), (0, 1, 2, 3)])
def test_others_stay_as_they_are(full: bool, gone: tuple[int, ...]) -> None:
    before = columns(full=full)
    after = blanked(before, mask(4, *gone))
    assert list(column_findings(after)) == []
    old, new = bytes(before.rows).splitlines(), bytes(after.rows).splitlines()
    for index in range(4):
        if index in gone:
            assert json.loads(new[index]) == {"$seq": index + 1, "$ts": 100 + index, "data": None}
        else:
            assert new[index] == old[index]
            at = np.array([index])
            for names, known in zip(after.names, before.names, strict=True):
                assert (names.at(at) or [None]) == (known.at(at) or [None])
    assert is_blank(after, mask(4, *gone))
    assert is_blank(before, mask(4, *gone)) == (not full and not gone)


def test_names_that_nobody_uses_any_more_are_gone() -> None:
    before = columns(full=True)
    after = blanked(before, mask(4, 1, 2))
    assert before.tags.names == ["zoo", "ant", "unused"]
    assert after.tags.names == ["zoo"]
    assert after.nodes == (None, [])
    everything = blanked(before, mask(4, 0, 1, 2, 3))
    assert (everything.meta_lens, everything.tags) == (None, (None, []))


def test_four_other_letters_are_not_null() -> None:
    run = columns()
    rows = bytes(run.rows).replace(b'"data":0', b'"data":true')
    run.rows, run.ends = rows, (np.flatnonzero(np.frombuffer(rows, np.uint8) == 10) + 1).astype(np.uint32)
    run.known_data_lens = np.array([4, 1, 1, 1], np.uint32)
    assert not is_blank(run, mask(4, 0))
    assert is_blank(blanked(run, mask(4, 0)), mask(4, 0))


def test_a_segment_takes_them(tmp_path: object) -> None:
    writer = SegmentWriter(1)
    writer.add(1, blanked(columns(full=True), mask(4, 0, 3)), np.array([1, 0, 0, 1], np.uint8))
    writer.write(FS, str(tmp_path), 1)
    segment = Segment(FS, f"{tmp_path}/{file_name(1)}")
    segment.verify(segment.entries[0])
    assert list(column_findings(segment.columns(segment.entries[0]))) == []
    segment.close()
