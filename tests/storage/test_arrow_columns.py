"""Columns of a run as Arrow has them: the same records, whichever are asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.storage.support import columns
from topics.storage.arrow_columns import TYPES, record_batch


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("wanted", [[0], [6], [0, 1, 2, 3, 4, 5, 6], [1, 2, 5], [3, 6]])
def test_a_batch_has_what_the_rows_say(full: bool, known: bool, wanted: list[int]) -> None:
    run = columns(7, base=8, full=full)
    if not known and not full:
        run.known_data_lens = None
    rows = [json.loads(row) for row in bytes(run.rows).splitlines()]
    batch = record_batch(run, np.array(wanted, np.int64), list(TYPES))
    batch.validate(full=True)
    found = batch.to_pydict()
    assert found["seq"] == [rows[at]["$seq"] for at in wanted]
    assert [int(moment.timestamp() * 1000) for moment in found["ts"]] == [rows[at]["$ts"] for at in wanted]
    assert found["data"] == [str(rows[at]["data"]) for at in wanted]
    assert found["meta"] == ["{}" if "meta" in rows[at] else None for at in wanted]
    nothing = [None] * len(wanted)
    assert found["node"] == (run.nodes.at(np.array(wanted)) or nothing)
    assert found["tag"] == (run.tags.at(np.array(wanted)) or nothing)
    assert record_batch(run, np.array(wanted, np.int64), ["tag", "seq"]).schema.names == ["tag", "seq"]
