"""Rows that are no record, told apart from those that are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyspark_topics.bad_records import BadRecords, wrong
from topics.core.errors import ApiError
from topics.core.settings import MAX_RECORD_BYTES
from topics.log.write.arrow_batch import check_cells


def test_rows_are_sifted_by_what_every_record_needs() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"data": ["1", None, "{", "2", "3"], "topic": ["a", "a", "a", None, "no name"]}
    )
    found = wrong(batch, has_target=False)
    reasons = [why.split(":")[0].removeprefix("a topic cannot be called ") for why in found.values()]
    assert list(found) == [1, 2, 3, 4]
    assert reasons == [
        "data is NULL",
        "data is not valid JSON",
        "topic is NULL",
        '"no name"',
    ]
    assert wrong(batch.slice(0, 1), has_target=True) == {}


LONGEST = MAX_RECORD_BYTES - 2


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Hypothesis, in other tests of this process, lets Python nest deeper than usual."""
    deeper = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(deeper)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"tag": "t" * 256, "node": "n" * 128}, None),
        ({"tag": "t" * 257}, "tag has more than 256 bytes"),
        ({"node": "é" * 65}, "node has more than 128 bytes"),
        ({"meta": ' {"a": 1}'}, None),
        ({"meta": " null "}, None),
        ({"meta": "[1]"}, "meta is no object"),
        ({"meta": "{"}, "meta is not valid JSON"),
        ({"meta": json.dumps({str(key): 1 for key in range(65)})}, "meta has 65 keys"),
        ({"meta": json.dumps({"a": "x" * 16_384})}, "meta has more than 16384 bytes"),
        ({"meta": json.dumps({"a": 1}) + " " * 16_384}, None),
        ({"data": json.dumps("x" * LONGEST)}, None),
        ({"data": json.dumps("x" * LONGEST) + " "}, None),
        ({"data": json.dumps("x" * LONGEST) + "x"}, "data is not valid JSON"),
        ({"data": json.dumps("x" * LONGEST), "meta": "{}"}, "data and meta together have more than"),
        ({"data": json.dumps("x" * (LONGEST + 1))}, "data and meta together have more than"),
        ({"data": "[" * 5000 + "]" * 5000}, "data is not valid JSON"),
    ],
)
@pytest.mark.usefixtures("usual_depth")
def test_what_the_server_would_refuse_is_no_record(row: dict[str, str], why: str | None) -> None:
    batch = pa.RecordBatch.from_pylist([{"data": "1"} | row])
    found = wrong(batch, has_target=True)
    assert (why is None) == (found == {}), found
    assert why is None or found[0].startswith(why)
    try:
        check_cells(batch)
        refused = False
    except ApiError:
        refused = True
    assert refused == (why is not None)


def test_of_a_long_row_the_beginning_is_kept() -> None:
    [text] = (
        BadRecords("errors", "big").records([("why", {"data": "x" * 2_000_000})]).column("data").to_pylist()
    )
    assert len(text) < MAX_RECORD_BYTES
    assert json.loads(text)["row"].startswith('{"data":"xxx')
