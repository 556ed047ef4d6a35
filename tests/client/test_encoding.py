"""What becomes JSON, and what is refused before it is sent."""

from __future__ import annotations

import datetime
import enum
import json
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import pytest

from topics.client.encoding import encode_json


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, {"b": None}], "c": (True, "x")},
        {"large": 10**30},
        [-(10**30)],
        OrderedDict(a=1),
        Counter("aab"),
        Point(1, 2),
        {1: "numbers become strings", 2.5: "as json has it"},
    ],
)
def test_what_is_json_is_said_as_json_says_it(value: Any) -> None:
    assert json.loads(encode_json(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        {b"key": 1},
        {float("nan"): 1},
        {Colour.RED: 1},
        {datetime.date(2026, 1, 1): 1},
        {(1, 2): 3},
        {None: 1},
        {"a": {b"key": 1}},
        [{float("inf"): 1}],
        {"a": {1, 2}},
        [[b"bytes"]],
        Colour.RED,
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        endless(),
        {"a": endless()},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_is_refused_wherever_it_stands(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_json(value)
