"""Rows of parts: in order, complete, and recognised wherever they come again."""

from __future__ import annotations

import json

import pytest

from tests.flow.stages.lab import StageLab
from tests.support.damage import flip
from topics.core.errors import ApiError
from topics.flow.stages.parts import read_parts


def test_parts_are_written_in_the_order_of_the_commit_and_only_those_it_names(lab: StageLab) -> None:
    for part in "012":
        lab.part(part, {"data": [part]}, topic="a")
    lab.commit_stage("2", "0")
    assert lab.data("a") == [2, 0]
    assert len(lab.spooled()) == 1


def test_tags_nodes_and_metas_arrive(lab: StageLab) -> None:
    lab.part(
        "0",
        {
            "topic": ["a", "b", "a"],
            "data": ["1", "2", "3"],
            "tag": ["x", None, None],
            "node": [None, "n", "n"],
            "meta": [None, '{"m": 1}', "{}"],
        },
    )
    lab.commit_stage("0")
    from topics.log.read.render import Shape

    rows = [json.loads(row) for row in lab.diff("a", shape=Shape(tags=True)).rows.splitlines()]
    assert [{k: v for k, v in row.items() if k != "$ts"} for row in rows] == [
        {"$seq": 1, "$tag": "x", "data": 1},
        {"$seq": 2, "$node": "n", "data": 3, "meta": {}},
    ]
    assert json.loads(lab.diff("b").rows)["meta"] == {"m": 1}


def test_the_commit_may_name_the_topic_of_rows_that_have_none(lab: StageLab) -> None:
    lab.part("0", {"topic": [None, "b"], "data": ["1", "2"]})
    with pytest.raises(ApiError, match="rows without a topic"):
        lab.commit_stage("0")
    assert lab.commit_stage("0", topic="a") == ({"a": (1, 1, 1), "b": (1, 1, 1)}, False)


def test_a_repeat_with_the_same_rows_in_another_order_and_other_parts_is_recognised(lab: StageLab) -> None:
    lab.part("0", {"data": ["1", "2", "3"], "tag": ["x", None, None]}, topic="a")
    first = lab.commit_stage("0")
    lab.part("0", {"data": ["3", "1"], "tag": [None, "x"]}, topic="a", stage="t")
    lab.part("1", {"data": ["2"]}, topic="a", stage="t")
    assert lab.commit_stage("0", "1", stage="t") == (first[0], True)
    assert lab.data("a") == [1, 2, 3]


def test_a_part_that_rotted_is_not_committed(lab: StageLab) -> None:
    lab.part("0", {"data": ['"hello"']}, topic="a")
    path = next((lab.directory / "stages").glob("*.part"))
    flip(path, path.stat().st_size // 2)
    with pytest.raises(ApiError, match="damaged"):
        lab.commit_stage("0")


def test_how_many_bytes_a_commit_may_have_and_from_how_many_on_it_is_a_large_one(lab: StageLab) -> None:
    size = sum(lab.part(part, {"data": ['"hello"']}, topic="a").bytes for part in "01")
    paths = lab.stages.open.paths("", "s", ["0", "1"])
    assert not read_parts(lab.disk, paths, None, size, size).is_large
    assert read_parts(lab.disk, paths, None, size, size - 1).is_large
    with pytest.raises(ApiError) as refusal:
        read_parts(lab.disk, paths, None, size - 1, size)
    assert refusal.value.code == "payload_too_large"
