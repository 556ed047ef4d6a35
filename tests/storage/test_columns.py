"""What can be worked out from a run's columns."""

import numpy as np

from tests.storage.support import columns


def test_starts_follow_from_ends() -> None:
    run = columns(3)
    assert [run.start_of(index) for index in range(4)] == [0, *run.ends.tolist()]
    assert columns(0).start_of(0) == 0


def test_sizes_count_data_and_meta() -> None:
    assert columns(11).sizes().tolist() == [1] * 10 + [2]
    run = columns(11, full=True)
    assert run.sizes().tolist() == [1, 3] * 5 + [2]
    assert run.sizes(9, 11).tolist() == [3, 2]
    assert run.sizes().dtype == np.int64


def test_data_lies_where_the_lengths_say() -> None:
    for full in (False, True):
        run = columns(5, full=full)
        rows = bytes(run.rows)
        for i, end in enumerate(run.data_ends().tolist()):
            assert rows[end - int(run.data_lens[i]) : end] == str(i).encode()
