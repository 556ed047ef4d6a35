"""Rows that are no record, told apart from those that are."""

from __future__ import annotations

import json

import pyarrow as pa

from pyspark_topics.misfits import Misfits, sift


def test_rows_are_sifted_by_what_every_record_needs() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"data": ["1", None, "{", "2", "3"], "topic": ["a", "a", "a", None, "no name"]}
    )
    good, found = sift(batch, ("data",), has_target=False)
    assert good.to_pydict() == {"data": ["1"], "topic": ["a"]}
    assert [row for _, row in found] == batch.slice(1).to_pylist()
    reasons = [why.split(":")[0].removeprefix("a topic cannot be called ") for why, _ in found]
    assert reasons == [
        "data is NULL",
        "data is not valid JSON",
        "topic is NULL",
        '"no name"',
    ]
    assert sift(batch.slice(0, 1), ("data",), has_target=True) == (batch.slice(0, 1), [])


def test_errors_as_the_sink_takes_them() -> None:
    batch = Misfits("errors", "big").records([("data is NULL", {"data": None, "at": pa.scalar(1)})])
    assert batch.column("tag").to_pylist() == ["error"]
    assert json.loads(batch.column("data")[0].as_py()) == {
        "kind": "error",
        "pipeline": "big",
        "reason": "data is NULL",
        "topic": None,
        "seq": None,
        "row": {"data": None, "at": "1"},
    }
