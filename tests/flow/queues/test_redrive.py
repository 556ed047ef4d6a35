"""Dead letters go back, each to its queue: those that were there, as many as asked for, and none twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, unexpected
from topics.core.errors import ApiError
from topics.flow.queues import dead_letters
from topics.flow.queues.dead_letters import Redrive, origin_of, without_origin
from topics.log.topic import Topic


@pytest.fixture
def lab(lab: QueueLab) -> QueueLab:
    """Five letters, two of them with a tag."""
    lab.put("dead", type="log")
    lab.put("q", max_deliveries=1, dead_letter="dead")
    lab.write("q", *({"data": number, "tag": "x" if number % 2 else "y"} for number in range(5)))
    lab.claim(9)
    lab.clock.advance(LEASE_MS + 1)
    lab.claim(9)
    assert lab.seqs("dead") == [1, 2, 3, 4, 5]
    return lab


def back_to(lab: QueueLab) -> Callable[[str | None], Topic | None]:
    return lambda origin: None if origin is None else lab.engine.find(origin)


def run(lab: QueueLab, name: str = "dead", **wish: Any) -> Redrive:
    """One walk, every part of it moved."""
    redrive = Redrive(lab.engine, lab.topic(name), set(), back_to(lab), **wish)
    while not redrive.is_over:
        for part in redrive.step():
            redrive.move(part, lambda: None, unexpected)
            lab.engine.queue.sync_now()
    return redrive


def test_letters_are_moved_in_steps_and_as_many_as_asked_for(
    lab: QueueLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "STEP_LETTERS", 2)
    some = run(lab, most=3)
    assert (some.moved, some.has_more, lab.seqs("dead")) == (3, True, [4, 5])
    rest = run(lab)
    assert (rest.moved, rest.has_more, lab.seqs("dead")) == (2, False, [])
    assert len(lab.claim(9)) == 5


def die(lab: QueueLab, name: str) -> None:
    """Every job of the queue is delivered once more than it may be."""
    lab.claim(9, name=name)
    lab.clock.advance(LEASE_MS + 1)
    assert lab.claim(9, name=name) == []


def meta_in(lab: QueueLab, name: str) -> Any:
    [record] = map(json.loads, lab.diff(name).rows.splitlines())
    return record.get("meta")


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {"own": 1},
        {"own": 1, "$dead_letter_from": "mine", "$dead_letter_own": 2, "$dead_letter_before": [3]},
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_letter_that_died_again_goes_all_the_way_back(lab: QueueLab, meta: Any, clean: bool) -> None:
    way = ["first", "second", "third", "last"]
    for name, then in pairwise(way):
        lab.put(name, max_deliveries=1, dead_letter=then)
    lab.put("last", type="log")
    lab.write("first", {"data": "job", "meta": meta})
    metas = []
    for name in way[:-1]:
        metas.append(meta_in(lab, name))
        die(lab, name)
    for name, then in pairwise(reversed(way)):
        lab.restart(clean=clean)
        redrive = run(lab, name)
        assert (redrive.moved, redrive.skipped) == (1, [])
        assert meta_in(lab, then) == metas.pop()
    lab.restart(clean=clean)
    # As it was written.
    assert meta_in(lab, "first") == meta


def test_a_queue_that_went_meanwhile_takes_nothing_with_it(lab: QueueLab) -> None:
    moving: set[int] = set()
    redrive = Redrive(lab.engine, lab.topic("dead"), moving, back_to(lab))
    (part,) = redrive.step()
    lab.drop("q")
    with pytest.raises(ApiError) as refusal:
        redrive.move(part, lambda: None, unexpected)
    assert refusal.value.code == "topic_not_found"
    lab.put("q")
    with pytest.raises(ApiError):
        redrive.move(part, lambda: None, unexpected)
    assert (lab.seqs("dead"), lab.seqs("q"), moving) == ([1, 2, 3, 4, 5], [], set())


# --- where a letter came from -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "origin", "left"),
    [
        (None, None, None),
        (b'{"a":1}', None, b'{"a":1}'),
        (b'{"a": "\\n"}', None, b'{"a":"\\n"}'),
        (b'{"a":1,"$dead_letter_from":"q","$dead_letter_deliveries":"3"}', "q", b'{"a":1}'),
        (b'{"$dead_letter_from":"q"}', "q", None),
        (b'{"\\u0024dead_letter_from":"q"}', "q", None),
        (b'{"$dead_letter_from":7}', None, None),
        (b'{"$dead_letter_deliveries":"3"}', None, None),
        (b'{"$dead_letter_from":"q","$dead_letter_own":1}', "q", b'{"$dead_letter_own":1}'),
        (
            b'{"$dead_letter_from":"b","$dead_letter_before":{"$dead_letter_from":"a"}}',
            "b",
            b'{"$dead_letter_from":"a"}',
        ),
        # Written by others: only what a letter tells comes out of it.
        (b'{"a":1,"$dead_letter_from":"q","$dead_letter_before":{"a":2,"b":3}}', "q", b'{"a":1}'),
        (b'{"$dead_letter_from":"q","$dead_letter_before":["$dead_letter_from"]}', "q", None),
    ],
)
def test_the_origin_is_read_and_taken_out(meta: bytes | None, origin: str | None, left: bytes | None) -> None:
    assert origin_of(meta) == origin
    assert without_origin(meta) == left
