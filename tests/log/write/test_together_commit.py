"""What comes together is written, shown and answered in one go, where nothing else is under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.log.write.test_together import PLAIN, World, found_together
from tests.support.accelerated import WAYS
from topics.log.write import together
from topics.log.write.together import TogetherOp
from topics.storage.witness import _ACKED
from topics.values.errors import ApiError


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[World]:
    """A world in which nothing waits, as long as nothing else is under way."""
    if WAYS.get("accelerated") is None:
        pytest.skip("there is no accelerator")
    world = World(tmp_path / "data", WAYS["accelerated"], at_once=True)
    for name in ("a", "b"):
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    world.do(("sync",))
    yield world
    world.lab.kill()


NEXT = [("a", "a/next", PLAIN % 1, None), ("b", "b/next", PLAIN % 2, None)]


def test_in_one_go_they_are_written_shown_and_answered(quick: World) -> None:
    engine = quick.lab.engine
    position, batches = engine.journal.position, engine.counters.batches
    quick.write(NEXT)
    assert quick.answers.told["a/next"] == quick.answers.told["b/next"] == (2, 1, False)
    assert [quick.lab.topic(name).head for name in ("a", "b")] == [2, 2]
    assert engine.journal.position > position
    assert engine.counters.batches == batches + 1
    assert engine.witness._words[_ACKED] == engine.journal.position


def test_now_and_then_it_is_seen_to_what_they_have_brought(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever waits for a sync is seen to at once."""
    engine, seen = quick.lab.engine, []
    quick.write(NEXT)
    before = engine.journal.position
    quick.write(NEXT)
    monkeypatch.setattr(together, "_UNSEEN_BYTES", 2 * (engine.journal.position - before))
    engine.queue.written_at_once = lambda: seen.append(None)
    quick.convoys._together._seen_to = engine.journal.position
    for _ in range(7):
        quick.write(NEXT)
    assert len(seen) == 3
    quick.do(("config", "a", {"durability": "fsync"}))
    for _ in range(3):
        quick.write(NEXT)
    assert len(seen) == 6


IN_THE_WAY: dict[str, Any] = {
    "something waits": lambda queue: queue.waiting.append(object()),
    "something gathers": lambda queue: queue._gatherers.append(lambda: None),
    "something is not ready": lambda queue: queue._held.append(object()),
    "a group is being written": lambda queue: setattr(queue, "_under_way", object()),
    "something takes effect": lambda queue: setattr(queue, "applying", True),
    "writes are refused": lambda queue: setattr(queue, "refusal", ApiError("disk_full", "full")),
    "the group is large": lambda queue: queue.write_aside(),
    "the loop is not free": lambda queue: setattr(queue, "is_free", lambda: False),
}


@pytest.mark.parametrize("put", IN_THE_WAY.values(), ids=list(IN_THE_WAY))
def test_behind_something_else_they_wait(quick: World, put: Any) -> None:
    queue, before = quick.lab.engine.queue, quick.seen()
    kept = vars(queue) | {name: [] for name in ("waiting", "_gatherers", "_held")}
    put(queue)
    assert quick.convoys._together.commit(found_together(NEXT), 0.0) is None
    vars(queue).update(kept)
    assert quick.seen() == before
    assert quick.convoys._together.commit(found_together(NEXT), 0.0) == []


def test_without_the_loop_nothing_is_written_at_once(quick: World) -> None:
    assert quick.lab.engine.queue.takes_at_once()
    quick.lab.restart()
    assert not quick.lab.engine.queue.takes_at_once()


def test_a_file_that_takes_no_more_ends_it_as_it_always_does(quick: World) -> None:
    """The call to the system fails, and so does the file's own method, which says why."""
    file = quick.lab.engine.journal._file
    descriptor, file._fd = file._fd, 1 << 30
    quick.write(NEXT)
    file._fd = descriptor
    assert quick.lab.engine.queue.failure is not None
    assert {quick.answers.told[writer] for writer in ("a/next", "b/next")} == {"internal"}
    assert [quick.lab.topic(name).assigned for name in ("a", "b")] == [1, 1]


def test_more_frames_than_one_call_takes_are_written_by_the_file(quick: World) -> None:
    names = [f"t{at}" for at in range(80)]
    for name in names:
        quick.do(("config", name, {}))
        quick.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    together = quick.answers.together
    quick.write([(name, f"{name}/next", PLAIN % 1, None) for name in names])
    assert quick.answers.together == together + 80
    quick.lab.restart()
    assert {quick.lab.topic(name).head for name in names} == {2}


def test_what_could_not_take_effect_is_in_doubt(quick: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(op: TogetherOp[str]) -> None:
        raise MemoryError

    monkeypatch.setattr(quick.answers, "answer_together", short)
    quick.write(NEXT)
    queue = quick.lab.engine.queue
    assert queue.failure is not None
    assert not queue.applying
    assert "a/next" in quick.answers.told
    # The journal has them: the next process shows them.
    quick.lab.restart()
    assert [quick.lab.topic(name).head for name in ("a", "b")] == [2, 2]


def test_with_a_sync_they_wait_for_it_and_nobody_overtakes(quick: World) -> None:
    quick.do(("config", "a", {"durability": "fsync"}))
    quick.write(NEXT)
    assert "a/next" not in quick.answers.told
    assert quick.answers.told["b/next"] == (2, 1, False)
    assert quick.lab.topic("a").pending_sync == 1
    assert quick.lab.engine.queue.writers_waiting == 1
    quick.write([("a", "a/last", PLAIN % 3, None)])
    quick.do(("sync",))
    assert [quick.answers.told[f"a/{which}"] for which in ("next", "last")] == [(2, 1, False), (3, 1, False)]
    assert quick.lab.topic("a").pending_sync == 0
