"""What becomes of a range that was lost: a row, an error, or nothing."""

import pytest

from pyspark_topics.errors import LossRefused
from pyspark_topics.loss import LossPolicy
from pyspark_topics.rows import ReadSchema

ROWS = ReadSchema(("seq", "topic", "kind", "gap_from", "gap_to", "reason"))


def test_a_row_says_what_is_missing_and_why() -> None:
    row = LossPolicy("rows", ROWS).announce("t", 3, 5, "cap")
    assert row is not None
    assert row.to_pylist() == [
        {"seq": None, "topic": "t", "kind": "tombstone", "gap_from": 3, "gap_to": 5, "reason": "cap"}
    ]


def test_a_read_without_those_columns_has_no_such_rows() -> None:
    assert LossPolicy("rows", ReadSchema(("seq", "data"))).announce("t", 3, 5, "cap") is None
    assert LossPolicy("ignore", ROWS).announce("t", 3, 5, "cap") is None


def test_a_read_may_rather_end() -> None:
    with pytest.raises(LossRefused, match=r"lost seqs 3 to 5 \(cap\) before they were read"):
        LossPolicy("fail", ROWS).announce("t", 3, 5, "cap")
    with pytest.raises(LossRefused, match=r"is not the one that was read before \(recreated\)"):
        LossPolicy("fail", ROWS).announce("t", 6, 5, "recreated")
    with pytest.raises(LossRefused, match=r"begins anew; seqs 6 to 9 were not read.*\{\"t\": 0\}"):
        LossPolicy("fail", ROWS).announce("t", 6, 9, "recreated")
