"""What comes together is written, shown and answered in one go, where nothing else is under way."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.log.harness import records
from tests.log.write.test_together import PLAIN, World, found_together
from tests.support.accelerated import WAYS
from topics.flow.convoys import Travellers
from topics.log.write import together
from topics.log.write.together import TogetherOp
from topics.storage.filesystem import File
from topics.storage.witness import _ACKED
from topics.values.errors import ApiError


def quick_world(directory: Path) -> World:
    if WAYS.get("accelerated") is None:
        pytest.skip("there is no accelerator")
    world = World(directory, WAYS["accelerated"], at_once=True)
    for name in ("a", "b"):
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    world.do(("sync",))
    return world


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[World]:
    """A world in which nothing waits, as long as nothing else is under way."""
    world = quick_world(tmp_path / "data")
    yield world
    world.lab.kill()


def written(world: World, name: str) -> list[object]:
    return [record["data"] for record in records(world.lab.diff(name))]


NEXT = [("a", "a/next", PLAIN % 1, None), ("b", "b/next", PLAIN % 2, None)]


def test_in_one_go_they_are_written_shown_and_answered(quick: World) -> None:
    engine = quick.lab.engine
    position, counters = engine.journal.position, engine.counters
    batches, size, frames = counters.batches, counters.bytes_written, counters.frames
    quick.write(NEXT)
    assert quick.answers.told["a/next"] == quick.answers.told["b/next"] == (2, 1, False)
    assert [quick.lab.topic(name).head for name in ("a", "b")] == [2, 2]
    assert engine.journal.position > position
    assert (counters.batches, counters.frames) == (batches + 1, frames + 2)
    assert counters.bytes_written - size == engine.journal.position - position
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


def test_where_the_door_is_not_open_for_all_nothing_is_written_before_they_are_let_in(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in: list[str] = []

    def let_in_some(travellers: Travellers[str], started: float) -> Travellers[str]:
        let_in.extend(travellers.writers)
        return travellers.chosen([])

    monkeypatch.setattr(quick.answers, "let_in", let_in_some)
    monkeypatch.setattr(quick.convoys._doors, "stand_open", False)
    quick.write(NEXT)
    quick.lab.engine.queue.flush()
    assert let_in == ["a/next", "b/next"]
    assert [quick.lab.topic(name).assigned for name in ("a", "b")] == [1, 1]


def test_how_long_it_held_the_loop_is_noted(quick: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held_s: list[float] = []
    monkeypatch.setattr(quick.answers, "note_held", held_s.append)
    quick.write(NEXT)
    assert len(held_s) == 1
    assert held_s[0] > 0


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


@pytest.fixture
def real(quick: World) -> World:
    """The journal is a file that the accelerator writes to by itself."""
    journal = quick.lab.engine.journal
    journal._file = File(journal._file.fileno(), journal._file.path)
    journal._unsynced[-1:] = [journal._file]
    return quick


def test_the_accelerator_writes_what_the_file_would_have_written(real: World) -> None:
    real.do(("config", "b", {"durability": "fsync"}))
    real.write(NEXT)
    real.write([("a", "a/last", PLAIN % 3, None), ("b", "b/last", PLAIN % 4, b"key")])
    real.do(("sync",))
    real.lab.restart()
    assert [written(real, name) for name in ("a", "b")] == [[0, 1, 3], [0, 2, 4]]


def test_a_write_that_failed_is_not_tried_again(real: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After that there is no telling what the disk holds, even if it were to take the next one."""
    tried: list[int] = []
    file = real.lab.engine.journal._file
    with open(file.path, "rb") as unwritable, monkeypatch.context() as patched:
        patched.setattr(File, "write", lambda _, buffers, position: tried.append(position))
        patched.setattr(file, "_fd", unwritable.fileno())
        real.write(NEXT)
    assert not tried
    assert real.lab.engine.queue.failure is not None
    assert {real.answers.told[writer] for writer in ("a/next", "b/next")} == {"internal"}


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_the_system_takes_in_part_is_written_whole_or_not_at_all(
    real: World, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """The file may not grow by more than a few bytes; where it may after all, its method writes the rest."""
    file, write = real.lab.engine.journal._file, File.write
    most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def go_on(file: File, buffers: list[bytes], position: int) -> int:
        if goes_on:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
        return write(file, buffers, position)

    monkeypatch.setattr(File, "write", go_on)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size() + 7, most[1]))
    try:
        real.write(NEXT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    told = {real.answers.told[writer] for writer in ("a/next", "b/next")}
    assert told == {(2, 1, False) if goes_on else "internal"}
    assert (real.lab.engine.queue.failure is None) is goes_on
    real.lab.restart()
    assert [written(real, name) for name in ("a", "b")] == ([[0, 1], [0, 2]] if goes_on else [[0], [0]])


def test_what_waits_for_a_sync_and_found_room_in_the_reserve_is_synced(quick: World) -> None:
    engine, seen = quick.lab.engine, []
    quick.do(("config", "a", {"durability": "fsync"}))
    engine.reserve.make(64 * 4096)
    file, refusals = engine.journal._file, iter([OSError(errno.ENOSPC, "no space left on device")])

    def write(buffers: list[bytes], position: int) -> int:
        for refusal in refusals:
            raise refusal
        return file.write(buffers, position)

    engine.journal._file = SimpleNamespace(  # type: ignore[assignment]
        write=write, truncate=file.truncate, sync=lambda: None, fileno=file.fileno, path=file.path
    )
    engine.queue.written_at_once = lambda: seen.append(engine.queue.wants_sync)
    quick.write(NEXT)
    engine.journal._file = file
    assert quick.answers.told["b/next"] == (2, 1, False)
    assert seen == [True]
    assert engine.witness._words[_ACKED] == engine.journal.position
    quick.do(("sync",))
    assert quick.answers.told["a/next"] == (2, 1, False)


def test_more_frames_than_one_call_takes_are_written_by_the_file(real: World) -> None:
    quick, names = real, [f"t{at}" for at in range(80)]
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
    # More would have to be reserved, and nothing can be any more.
    quick.lab.topic("a").reserving = 1 << 12
    quick.write(NEXT)
    queue = quick.lab.engine.queue
    assert queue.failure is not None
    assert not queue.applying
    assert "a/next" in quick.answers.told
    # The journal has them: the next process shows them.
    quick.lab.restart()
    assert [quick.lab.topic(name).head for name in ("a", "b")] == [2, 2]


def test_what_waits_for_a_sync_fails_with_what_could_not_take_effect(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind records that are taken back there is nothing to be acknowledged."""

    def short(op: TogetherOp[str]) -> None:
        raise MemoryError

    quick.do(("config", "a", {"durability": "fsync"}))
    quick.write([("a", "a/before", PLAIN % 3, None)])
    monkeypatch.setattr(quick.answers, "answer_together", short)
    quick.write(NEXT)
    quick.do(("sync",))
    assert {quick.answers.told[writer] for writer in ("a/before", "a/next", "b/next")} == {"internal"}
    topic = quick.lab.topic("a")
    assert (topic.head, topic.assigned, topic.pending_sync) == (1, 1, 0)
    quick.lab.restart()
    assert [quick.lab.topic(name).head for name in ("a", "b")] == [1, 2]


def test_those_who_are_left_do_not_wait_for_others_where_only_few_write(quick: World) -> None:
    quick.do(("config", "a", {"cap_records": 5}))
    queue, hurries = quick.lab.engine.queue, []
    queue.hurry = lambda: hurries.append(queue.flush())
    quick.write(NEXT)
    assert quick.answers.told["a/next"] == quick.answers.told["b/next"] == (2, 1, False)
    assert len(hurries) == 1


def test_what_waits_for_a_sync_does_not_wait_in_vain_whatever_goes_wrong(quick: World) -> None:
    def defect() -> None:
        raise RuntimeError("a defect")

    engine, seen = quick.lab.engine, []
    quick.do(("config", "a", {"durability": "fsync"}))
    engine.queue.written_at_once = lambda: seen.append(engine.queue.wants_sync)
    quick.lab.topic("b").listeners.append(defect)
    with pytest.raises(RuntimeError):
        quick.write(NEXT)
    assert seen == [True]


def test_those_who_are_left_are_written_even_if_there_is_no_memory_to_see_to_the_others(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(quick.lab.engine.store.unsealed, "max_events", 2)
    with monkeypatch.context() as patched:
        patched.setattr(quick.convoys._together, "_see_to", short)
        quick.write([*NEXT, ("a", "a/odd", b'{"records":[{"data":3,"tag":"t"}]}', b"key")])
    quick.lab.engine.queue.flush()
    assert [quick.answers.told[f"a/{which}"] for which in ("next", "odd")] == [(2, 1, False), (3, 1, False)]
    # The next write leaves the full run behind for good.
    assert quick.lab.engine.store.unsealed.is_full(quick.lab.topic("a").runs[0])


@pytest.mark.parametrize("where", ["behind the answer", "in what they have brought about"])
def test_nothing_is_written_twice_whatever_goes_wrong(
    quick: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def defect(*_: object) -> None:
        raise RuntimeError("a defect")

    topic = quick.lab.topic("a")
    with monkeypatch.context() as patched:
        if where == "behind the answer":
            patched.setattr(topic, "listeners", [defect])
        else:
            patched.setattr(quick.convoys._together, "_see_to", defect)
            patched.setattr(quick.lab.engine.store.unsealed, "max_events", 2)
        with pytest.raises(RuntimeError):
            quick.write(NEXT)
    assert quick.answers.told["a/next"] == (2, 1, False)
    quick.write([("a", "a/last", PLAIN % 3, None)])
    assert quick.answers.told["a/last"] == (3, 1, False)
    assert (topic.head, topic.assigned, topic.live_count) == (3, 3, 3)
    quick.lab.restart()
    assert written(quick, "a") == [0, 1, 3]


def test_what_waits_for_a_sync_is_found_by_whatever_the_others_bring_about(quick: World) -> None:
    """A reader who asks for all that is written to be shown gets all of it."""
    quick.do(("config", "a", {"durability": "fsync"}))
    quick.lab.topic("b").listeners.append(quick.lab.engine.queue.sync_inline)
    quick.write(NEXT)
    assert quick.answers.told["a/next"] == quick.answers.told["b/next"] == (2, 1, False)


class ShortOfMemory:
    """The accelerator's own, which gets no memory from the time of this number on, so many times."""

    def __init__(self, native: Any, at: int, times: int = 1) -> None:
        self.publish = native.publish
        self._native = native
        self._at = at
        self._times = times
        self._memory: Any = pytest.importorskip("_testcapi")

    def commit(self, *given: Any) -> Any:
        self._memory.set_nomemory(self._at, self._at + self._times)
        try:
            return self._native.commit(*given)
        finally:
            self._memory.remove_mem_hooks()

    def append(self, *given: Any) -> Any:
        return self._native.append(*given)


@pytest.mark.parametrize("at", range(1, 64, 3))
def test_without_memory_at_whatever_point_each_is_written_once_or_refused(tmp_path: Path, at: int) -> None:
    for number in range(at, at + 3):
        world = quick_world(tmp_path / f"{number}")
        together = world.convoys._together
        together._native = ShortOfMemory(together._native, number)
        world.do(("write", [*NEXT, ("a", "a/keyed", PLAIN % 3, b"key")], []))
        told = {world.answers.told[writer] for writer in ("a/next", "a/keyed", "b/next")}
        is_refused = world.lab.engine.queue.failure is not None
        assert told == {"internal"} if is_refused else told == {(2, 1, False), (3, 1, False)}
        world.lab.restart()
        assert written(world, "b") == ([0] if is_refused else [0, 2])
        assert sorted(map(str, written(world, "a"))) == (["0"] if is_refused else ["0", "1", "3"])
        world.lab.kill()


@pytest.mark.parametrize("times", [1, 2, 1000])
@pytest.mark.parametrize("at", range(1, 100, 9))
def test_without_memory_none_of_many_is_lost_or_written_twice(tmp_path: Path, at: int, times: int) -> None:
    """Those that are written are crossed off a list, which may not take memory."""
    names = "abcdef"
    world = quick_world(tmp_path / "data")
    for name in names[2:]:
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/0", PLAIN % 0, None)], []))
    together = world.convoys._together
    native, heads = together._native, dict.fromkeys(names, 1)
    for number in range(at, at + 9):
        together._native = ShortOfMemory(native, number, times)
        writes = [(name, f"{name}/{number}", PLAIN % number, None) for name in names]
        writes[3] = *writes[3][:3], b"%d" % number
        world.do(("write", writes, []))
        if world.lab.engine.queue.failure is not None:
            assert {world.answers.told[writer] for _, writer, *_ in writes} == {"internal"}
            break
        heads = {name: head + 1 for name, head in heads.items()}
        assert [world.answers.told[writer] for _, writer, *_ in writes] == [
            (head, 1, False) for head in heads.values()
        ]
    world.lab.restart()
    assert {name: world.lab.topic(name).head for name in names} == heads
    world.lab.kill()


def test_with_a_sync_they_wait_for_it_and_nobody_overtakes(quick: World) -> None:
    quick.do(("config", "a", {"durability": "fsync"}))
    quick.write(NEXT)
    assert "a/next" not in quick.answers.told
    assert quick.answers.told["b/next"] == (2, 1, False)
    assert quick.lab.topic("a").pending_sync == 1
    assert quick.lab.engine.queue.writers_waiting == 1
    quick.write([("a", "a/alone", PLAIN % 3, None)])
    assert quick.lab.engine.witness._words[_ACKED] == quick.lab.engine.journal.position
    quick.write([("a", "a/last", PLAIN % 3, None)])
    quick.do(("sync",))
    told = [quick.answers.told[f"a/{which}"] for which in ("next", "alone", "last")]
    assert told == [(2, 1, False), (3, 1, False), (4, 1, False)]
    assert quick.lab.topic("a").pending_sync == 0
