"""What can be worked out from a run's columns."""

import numpy as np
import pytest

from tests.storage.support import columns
from topics.storage.columns import Records, join_records


@pytest.mark.parametrize(("base", "count"), [(1, 12), (95, 12), (998, 950), (5, 1), (5, 0)])
def test_lengths_that_are_not_kept_follow_from_the_rows(base: int, count: int) -> None:
    run, known = columns(count, base=base), columns(count, base=base).data_lens.tolist()
    run.known_data_lens = None
    assert run.sizes(3).tolist() == known[3:]
    assert run.data_lens.tolist() == known


WHOLE = {
    "metas": [None, b"{}"],
    "nodes": [None, "n1", "\u00fc2"],
    "tags": ["zoo", "ant", None],
    "hops": [0, 1],
}


def as_lists(found: Records) -> dict[str, list[object] | None]:
    parts = {name: getattr(found, name) for name in ("seqs", "data", "metas", "hops")}
    parts["tags"], parts["nodes"] = found.names or (None, None)
    return {name: None if column is None else list(column) for name, column in parts.items()}


def expected(base: int, indexes: list[int], *, full: bool) -> dict[str, list[object] | None]:
    """What `columns` has there."""
    parts = {
        name: [values[index % len(values)] for index in indexes] if full else None
        for name, values in WHOLE.items()
    }
    return {"seqs": [base + i for i in indexes], "data": [b"%d" % i for i in indexes], **parts}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("indexes", [[0], [3], [0, 1, 2, 3, 4], [1, 4], [2, 3]])
def test_records_are_taken_apart(full: bool, indexes: list[int]) -> None:
    run = columns(5, base=7, full=full)
    found = run.records(np.array(indexes, np.int64))
    assert as_lists(found) == expected(7, indexes, full=full)
    assert run.size_of(np.array(indexes)) == sum(1 + 2 * (i % 2) * full for i in indexes)
    every = run.records(np.arange(5))
    assert as_lists(every.take(np.array(indexes, np.int64))) == expected(7, indexes, full=full)


def test_records_of_several_runs_are_put_together() -> None:
    plain, full = (columns(2, base=base, full=base > 1).records(np.arange(2)) for base in (1, 3))
    assert as_lists(join_records([plain, plain])) == expected(1, [0, 1], full=False) | {
        "seqs": [1, 2, 1, 2],
        "data": [b"0", b"1"] * 2,
    }
    assert as_lists(join_records([full, full]))["hops"] == [0, 1, 0, 1]
    assert as_lists(join_records([full])) == as_lists(full)
    joined = as_lists(join_records([plain, full]))
    first, second = expected(1, [0, 1], full=False), expected(3, [0, 1], full=True)
    assert joined == {
        name: (first[name] or [0 if name == "hops" else None] * 2) + (second[name] or []) for name in second
    }
    for nothing in (join_records([]), columns(3).records(np.empty(0, np.int64))):
        assert as_lists(nothing) == expected(0, [], full=False)
