"""Dead letters go back, each to its queue: those that were there, as many as asked for, and none twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.flow.queues.lab import LEASE_MS, QueueLab, unexpected
from topics.core.errors import ApiError
from topics.flow.queues import redrive as redriving
from topics.flow.queues.dead_letters import origin_of, without_origin
from topics.flow.queues.redrive import Redrive
from topics.log.remove.tags import parse_match
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


def test_what_a_job_said_about_itself_goes_back_with_it(lab: QueueLab) -> None:
    lab.write("q", {"data": "more", "meta": {"m": 1}, "tag": "t"})
    lab.claim(9)
    lab.clock.advance(LEASE_MS + 1)
    lab.claim(9)
    run(lab)
    (job,) = [job for job in lab.claim(9) if job["data"] == "more"]
    assert (job["meta"], job["$tag"]) == ({"m": 1}, "t")


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


def test_letters_that_never_had_a_meta_can_be_sent_to_a_queue(lab: QueueLab) -> None:
    lab.put("plain", type="log")
    lab.write("plain", "a", "b")
    redrive = Redrive(lab.engine, lab.topic("plain"), set(), lambda _: lab.topic("q"))
    for part in redrive.step():
        redrive.move(part, lambda: None, unexpected)
    lab.engine.queue.sync_now()
    assert [job["data"] for job in lab.claim(9)] == ["a", "b"]


@pytest.mark.parametrize("step", [1, 2, 5, 9])
def test_others_have_their_turn_in_between(lab: QueueLab, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(redriving, "STEP_LETTERS", step)
    redrive = Redrive(lab.engine, lab.topic("dead"), set(), back_to(lab))
    sizes = []
    while not redrive.is_over:
        sizes.append(sum(len(part.letters) for part in redrive.step()))
    assert sizes[0] == min(step, 5)
    assert sum(sizes) == 5


def test_only_so_many_are_looked_at(lab: QueueLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redriving, "MOST_LETTERS", 2)
    monkeypatch.setattr(redriving, "STEP_LETTERS", 1)
    redrive = run(lab, most=4, match=parse_match("nobody"))
    assert (redrive.moved, redrive.has_more) == (0, True)
    assert redrive._next == 3


def test_what_came_later_is_left(lab: QueueLab) -> None:
    redrive = Redrive(lab.engine, lab.topic("dead"), set(), back_to(lab))
    lab.write("dead", {"data": "late", "meta": {"$dead_letter_from": "q"}})
    assert [part.letters.seqs.tolist() for part in redrive.step()] == [[1, 2, 3, 4, 5]]


def test_what_has_no_queue_or_is_on_its_way_is_skipped(lab: QueueLab) -> None:
    lab.write("dead", {"data": "from nowhere"})
    redrive = Redrive(lab.engine, lab.topic("dead"), {2, 4}, back_to(lab))
    assert [part.letters.seqs.tolist() for part in redrive.step()] == [[1, 3, 5]]
    assert redrive.skipped == [2, 4, 6]


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


@pytest.mark.parametrize(("durability", "moved"), [("disk", 5), ("fsync", 0)])
def test_letters_on_disk_are_gone_when_the_disk_knows(lab: QueueLab, durability: str, moved: int) -> None:
    lab.put("dead", type="log", durability=durability)
    redrive = Redrive(lab.engine, lab.topic("dead"), set(), back_to(lab))
    (part,) = redrive.step()
    redrive.move(part, lambda: None, unexpected)
    lab.engine.queue.flush()
    assert redrive.moved == moved
    lab.engine.queue.sync_now()
    assert redrive.moved == 5


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
