"""Which topics are in a later life: remembered over drops, restarts and damage, within a bound."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.log.harness import Lab
from topics.core.config import DEFAULT_CONFIG
from topics.log import lives as module
from topics.log.lifecycle import create_topic, drop_topic
from topics.log.lives import Lives
from topics.storage import Kind


def later(lab: Lab) -> list[str]:
    return [name for name in lab.engine.names_after("", "") if not lab.topic(name).first_life]


def again(lab: Lab, *names: str) -> None:
    for name in names:
        lab.put(name)
        lab.drop(name)
        lab.put(name)


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False])
def test_restarts(lab: Lab, checkpoints: int, clean: bool) -> None:
    lab.put("first")
    again(lab, "before")
    lab.put("gone-before")
    lab.drop("gone-before")
    for _ in range(checkpoints):
        lab.checkpoint()
    again(lab, "after")
    lab.put("gone")
    lab.drop("gone")
    for _ in range(2):
        lab.restart(clean=clean)
        assert later(lab) == ["after", "before"]
    for name in ("gone", "gone-before", "never"):
        lab.put(name)
    assert later(lab) == ["after", "before", "gone", "gone-before"]


def test_a_name_is_free_while_its_drop_is_on_the_way(lab: Lab) -> None:
    """And whoever takes it then comes later all the same."""
    lab.put("t")
    outcome: list[Any] = []
    drop_topic(lab.engine, "t", False, outcome.append, outcome.append)
    topic = create_topic(lab.engine, "t", DEFAULT_CONFIG, lambda: outcome.append("made"), outcome.append)
    assert not topic.first_life
    lab.engine.queue.sync_now()
    assert outcome == [True, "made"]
    lab.restart()
    assert later(lab) == ["t"]


def test_a_creation_that_cannot_be_read(lab: Lab) -> None:
    """Its records are kept, under another name."""
    again(lab, "t")
    topic_id = lab.topic("t").id
    lab.write("t", 1, 2)
    (frame,) = [frame for frame in lab.frames() if frame.kind == Kind.CREATE_AGAIN]
    lab.kill()
    data = bytearray(frame.path.read_bytes())
    data[frame.payload_at] ^= 0xFF
    frame.path.write_bytes(data)
    lab.open()
    assert lab.seqs(f"recovered-{topic_id}") == [1, 2]
    assert lab.engine.find("t") is None
    lab.put("t")
    assert later(lab) == ["t"]


def test_beyond_the_bound_every_new_topic_counts_as_later(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 3)
    for name in "abc":
        lab.put(name)
        lab.drop(name)
    lab.put("first")
    assert later(lab) == []
    # One that is known needs no room.
    again(lab, "a")
    assert later(lab) == ["a"]
    lab.put("d")
    assert later(lab) == ["a"]
    lab.drop("d")
    lab.put("e")
    assert later(lab) == ["a", "e"]
    lab.restart()
    lab.checkpoint()
    lab.restart()
    lab.put("f")
    assert later(lab) == ["a", "e", "f"]


def test_names_are_kept_in_eight_bytes_each() -> None:
    chance = random.Random(3)
    lives, known = Lives(dict), set()
    for _ in range(500):
        name = f"topic-{chance.randrange(300)}"
        assert lives.is_first(name) is (name not in known)
        lives.remember(name)
        known.add(name)
        state = lives.dump()
        assert len(state.names) == 8 * len(known)
        lives = Lives(dict)
        lives.load(state)
    assert not any(map(lives.is_first, known))
