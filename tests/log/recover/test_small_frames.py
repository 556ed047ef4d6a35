"""Recovery takes small frames together, and nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.log.harness import Lab, records
from topics.log.recover import recovery
from topics.log.recover.small_frames import JoinedFrames, join_small
from topics.storage.frame import Frame, Kind
from topics.storage.frame_stretch import MIN_FRAMES, FrameStretch
from topics.storage.journal_reader import Damage


def frame(
    position: int, seq: int, count: int = 1, topic: int = 1, kind: int = Kind.APPEND, flags: int = 0
) -> Frame:
    return Frame(kind, flags, count, topic, seq, 0, 0, position=position, payload=memoryview(b""))


def shape(items: Iterable[Frame | Damage | JoinedFrames]) -> list[int | list[int]]:
    """First seqs, those taken together in a list of their own."""
    return [
        [part.first_seq for part in item.frames]
        if isinstance(item, JoinedFrames)
        else getattr(item, "first_seq", -1)
        for item in items
    ]


def joined(*items: Frame | Damage, border: int = 0) -> list[int | list[int]]:
    return shape(join_small(items, border))


def test_neighbours_are_joined() -> None:
    assert joined(frame(0, 1), frame(10, 2, 3), frame(20, 5)) == [[1, 2, 5]]
    assert joined(frame(0, 1)) == [1]
    assert joined() == []


@pytest.mark.parametrize(
    "between",
    [
        frame(10, 2, topic=2),
        frame(10, 3),
        frame(10, 2, flags=1),
        frame(10, 2, count=100),
        frame(10, 2, kind=Kind.DELETE),
        Damage(10, 20, None),
    ],
)
def test_whatever_is_different_stands_alone(between: Frame | Damage) -> None:
    first, _, last = joined(frame(0, 1), between, frame(30, 40), frame(40, 41))
    assert (first, last) == (1, [40, 41])


def test_keys_come_behind_what_is_joined_and_nothing_else_does() -> None:
    """A delete that came later would take more with it."""
    assert joined(frame(0, 1), frame(10, 9, kind=Kind.KEYED), frame(20, 2)) == [[1, 2], 9]
    assert joined(frame(0, 1), frame(10, 9, kind=Kind.DELETE), frame(20, 2)) == [1, 9, 2]


def one_by_one(items: Iterable[Frame | Damage | FrameStretch], border: int) -> Iterator[Frame | Damage]:
    for item in items:
        yield from item.frames if isinstance(item, FrameStretch) else [item]


def history(lab: Lab) -> None:
    """Single writes with all that may come between them."""
    lab.put("capped", cap_records=3)
    lab.put("aging", ttl_ms=50)
    for number in range(12):
        for name in ("plain", "plain", "capped", "aging"):
            lab.write(name, {"data": {"n": number}})
        lab.clock.advance(7)
        if number % 5 == 4:
            lab.write("plain", {"data": number, "tag": "x"}, {"data": number, "meta": {"m": 1}})
            lab.delete("plain", before=number)
        if number == 6:
            lab.checkpoint()
        if number in (3, 8):
            lab.write_each("plain", 2 * MIN_FRAMES)
            lab.clock.advance(1)
            lab.write_each("plain", 2 * MIN_FRAMES)
            lab.write_each("capped", 2 * MIN_FRAMES)


def told(lab: Lab) -> Any:
    rows = [json.dumps(record) for name in lab.states() for record in records(lab.diff(name))]
    return lab.states(), rows, {name: lab.topic(name).last_ts for name in lab.states()}


@pytest.mark.parametrize("events", [4, 1000])
def test_recovery_finds_the_same_either_way(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    lab = make_lab(segment_max_events=events)
    history(lab)
    before = told(lab)
    lab.restart()
    assert told(lab) == before
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "join_small", one_by_one)
        lab.restart()
        assert told(lab) == before
    lab.write("plain", 1)


def test_a_ttl_that_comes_later_finds_each_record_as_old_as_it_is(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(segment_max_events=1000)
    for _ in range(4):
        lab.write("t", 1)
        lab.clock.advance(100)
    lab.restart()
    lab.put("t", ttl_ms=250)
    assert lab.seqs("t") == [3, 4]
    assert lab.gaps("t") == [(1, 2, "ttl")]
