"""Keys that are remembered: a write that comes again is answered, not repeated."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.log.harness import Lab, short_of_memory
from tests.support.appending import Appended, append, body_of
from topics.core.errors import ApiError
from topics.log.write.idempotency import CHUNK_KEYS, keys_kept_ms

WINDOW_MS = 100


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    return lab


def submit(lab: Lab, key: str) -> list[object]:
    """Not committed yet."""
    answers: list[object] = []
    append(lab.engine, "t", body_of(1), answers.append, answers.append, key=key.encode())
    return answers


def test_who_comes_while_the_first_is_under_way_waits_for_it(lab: Lab) -> None:
    first, second, third = (submit(lab, "a") for _ in range(3))
    assert not first
    assert not second
    lab.engine.queue.sync_now()
    ops = [answers[0] for answers in (first, second, third)]
    assert [(op.first_seq, op.deduped) for op in ops if isinstance(op, Appended)] == [
        (1, False),
        (1, True),
        (1, True),
    ]
    assert lab.topic("t").head == 1


def test_who_waits_for_one_that_fails_fails_too(lab: Lab) -> None:
    first, second = submit(lab, "a"), submit(lab, "a")
    lab.engine.queue.give_up(OSError("the disk is gone"))
    assert isinstance(first[0], ApiError)
    assert isinstance(second[0], ApiError)
    lab.restart()
    assert not lab.write("t", 1, key="a").deduped


def test_who_waits_for_one_does_not_fail_with_one_behind_it(lab: Lab) -> None:
    first, retry = submit(lab, "a"), submit(lab, "a")
    keys = lab.topic("t").keys
    assert keys is not None
    keys.fail(ApiError("internal", "the last one got seq 2, and was taken back"))
    assert not retry
    lab.engine.queue.sync_now()
    assert [type(answers[0]) for answers in (first, retry)] == [Appended, Appended]


def test_keys_that_are_over_are_swept_out(lab: Lab) -> None:
    for number in range(4):
        lab.clock.advance(WINDOW_MS // 2 + 1)
        lab.write("t", number, key=str(number))
    lab.engine.keys.sweep(lab.engine.now())
    keys, now = lab.engine.keys, lab.engine.now()
    assert keys.count == 2, "the last two are inside their window"
    assert not keys.of(lab.topic("t")).has_over(now), "nothing is left to do, so that others have their turn"
    lab.clock.advance(WINDOW_MS + 1)
    keys.sweep(lab.engine.now())
    assert keys.count == 0
    assert lab.topic("t").keys is None, "nothing is kept for a topic without keys"


def seqs_of(op: Appended) -> tuple[int, int, int, bool]:
    return op.first_seq, op.last_seq, op.head_seq, op.deduped


def test_a_key_that_was_over_counts_anew_from_its_second_use(lab: Lab) -> None:
    """Also where its first use still lies beside the second one."""
    lab.write("t", 1, key="a")
    lab.write("t", 2, key="b")
    lab.clock.advance(WINDOW_MS + 1)
    assert seqs_of(lab.write("t", 3, key="a")) == (3, 3, 3, False)
    lab.clock.advance(WINDOW_MS)
    assert seqs_of(lab.write("t", 4, key="a")) == (3, 3, 3, True)
    lab.engine.keys.sweep(lab.engine.now())
    assert seqs_of(lab.write("t", 4, key="a")) == (3, 3, 3, True)
    assert lab.engine.keys.count == 1


def test_a_write_that_failed_leaves_no_key(lab: Lab) -> None:
    """Not even for those who come while the failure is being told."""
    lab.write("t", 1, key="kept")
    first = submit(lab, "a")
    again: list[object] = []

    def tell(_: ApiError) -> None:
        with pytest.raises(ApiError):
            append(lab.engine, "t", body_of(1), again.append, again.append, key=b"a")

    append(lab.engine, "t", body_of(2), first.append, tell, key=b"b")
    lab.engine.queue.give_up(OSError("the disk is gone"))
    assert isinstance(first[0], ApiError)
    assert not again, "a write that failed was answered for"
    assert lab.engine.keys.count == 1


def test_an_append_that_was_refused_leaves_no_key(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys before it stay."""
    lab.put("t", cap_records=1, discard="reject", idempotency_window_ms=WINDOW_MS)
    lab.write("t", 1, key="before")
    with pytest.raises(ApiError, match="full"):
        lab.write("t", 2, key="a")
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    with monkeypatch.context() as patch:
        short_of_memory(patch)
        with pytest.raises(ApiError, match="memory"):
            lab.write("t", 2, key="a")
    keys = lab.topic("t").keys
    assert keys is not None
    assert keys.count == lab.engine.keys.count == 1
    assert seqs_of(lab.write("t", 1, key="before")) == (1, 1, 1, True)
    assert seqs_of(lab.write("t", 2, key="a")) == (2, 2, 2, False)
    lab.clock.advance(WINDOW_MS + 1)
    lab.engine.keys.sweep(lab.engine.now())
    assert lab.engine.keys.count == 0


def test_a_shorter_window_ends_at_once_and_a_longer_one_brings_nothing_back(lab: Lab) -> None:
    lab.write("t", 1, key="a")
    lab.clock.advance(50)
    lab.write("t", 2, key="b")
    lab.clock.advance(10)
    lab.put("t", idempotency_window_ms=30)
    lab.put("t", idempotency_window_ms=1000)
    assert lab.write("t", 2, key="b").deduped
    assert not lab.write("t", 1, key="a").deduped
    lab.clock.advance(900)
    assert lab.write("t", 2, key="b").deduped
    lab.put("t", idempotency_window_ms=0)
    lab.put("t", idempotency_window_ms=1000)
    assert not lab.write("t", 2, key="b").deduped
    assert lab.write("t", 2, key="b").deduped, "in the same millisecond, too"


# --- bounds -------------------------------------------------------------------------------------------------


def test_a_topic_forgets_its_oldest_keys_when_it_has_too_many(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_idempotency_keys_per_topic=3)
    lab.put("t", idempotency_window_ms=1000)
    lab.put("u", idempotency_window_ms=1000)
    for number in range(5):
        lab.clock.advance(10)
        lab.write("t", number, key=str(number))
    lab.write("u", 0, key="0")
    keys, now = lab.engine.keys, lab.engine.now()
    assert (keys.count, keys.forgotten) == (4, 2)
    assert (keys_kept_ms(lab.topic("t"), now), keys_kept_ms(lab.topic("u"), now)) == (30, 1000)
    assert [lab.write("t", 0, key=str(number)).deduped for number in (2, 3, 4)] == [True] * 3
    assert lab.write("u", 0, key="0").deduped
    keys.sweep(now)
    assert keys.count == 4, "what is gone already does not go again, nor come back"
    assert not lab.write("t", 0, key="1").deduped


def test_the_oldest_keys_of_all_topics_go_when_there_are_too_many(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_idempotency_keys=4)
    for name in "abc":
        lab.put(name, idempotency_window_ms=1000)
    for number, name in enumerate("aabacb"):
        lab.clock.advance(10)
        lab.write(name, number, key=str(number))
    assert (lab.engine.keys.count, lab.engine.keys.forgotten) == (4, 2)
    now = lab.engine.now()
    assert [keys_kept_ms(lab.topic(name), now) for name in "abc"] == [40, 1000, 1000]
    assert [lab.write(name, 0, key=key).deduped for name, key in ("b2", "a3", "c4", "b5")] == [True] * 4
    lab.clock.advance(10)
    lab.write("c", 6, key="6")
    assert not lab.write("b", 0, key="2").deduped, "the oldest of all was another one"
    assert lab.write("a", 0, key="3").deduped is False
    assert lab.engine.keys.count == 4


@pytest.mark.parametrize("ms", [60, 40])
def test_what_is_over_is_not_counted_as_forgotten(make_lab: Callable[..., Lab], ms: int) -> None:
    """Neither where more of them are over than have to go, nor where as many are."""
    lab = make_lab(max_idempotency_keys_per_topic=3)
    lab.put("t", idempotency_window_ms=100)
    assert keys_kept_ms(lab.topic("t"), lab.engine.now()) == 100
    for number in range(9):
        lab.clock.advance(ms)
        lab.write("t", number, key=str(number))
    assert (lab.engine.keys.count, lab.engine.keys.forgotten) == (3, 0)
    assert keys_kept_ms(lab.topic("t"), lab.engine.now()) == 100
    lab.put("t", idempotency_window_ms=1000)
    assert keys_kept_ms(lab.topic("t"), lab.engine.now()) == 1000


def test_bounds_hold_over_many_chunks(make_lab: Callable[..., Lab]) -> None:
    most = 3 * CHUNK_KEYS
    lab = make_lab(max_idempotency_keys_per_topic=most)
    lab.put("t", idempotency_window_ms=10**9)
    numbers = range(5 * CHUNK_KEYS)
    for number in numbers:
        lab.clock.advance(number % 2)
        lab.write("t", number, key=str(number))
    keys = lab.engine.keys
    assert most * 0.98 <= keys.count <= most
    assert keys.count + keys.forgotten == len(numbers)
    oldest = len(numbers) - keys.count
    assert seqs_of(lab.write("t", 0, key=str(oldest))) == (oldest + 1, oldest + 1, oldest + 1, True)
    assert not lab.write("t", 0, key=str(oldest - 1)).deduped


def _most_bytes_a_key(directory: Path, at_a_time: int) -> float:
    """The most memory that a key takes while old keys make room for new ones, `at_a_time` in an append."""
    lab = Lab(directory)
    lab.put("t", idempotency_window_ms=10_000)
    topic, engine = lab.topic("t"), lab.engine
    keys = engine.keys.of(topic)
    engine.keys.most_a_topic = 11_000
    names, worst = (b"%040d" % number for number in count()), 0.0
    gc.collect()
    tracemalloc.start()
    for _ in range(40_000 // at_a_time):
        keys.remember({keys.digest(next(names)): (1 + at, 1) for at in range(at_a_time)}, engine.now())
        if keys.count > 8000:
            used = tracemalloc.get_traced_memory()[0]
            worst = max(worst, used / keys.count)
    tracemalloc.stop()
    assert engine.keys.forgotten > 28_000
    return worst


@pytest.mark.parametrize("at_a_time", [1, 16])
def test_a_key_takes_at_most_200_bytes(tmp_path: Path, at_a_time: int) -> None:
    """Counted in a process of its own, because other threads of a test runner take memory, too."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:
        worst = own_process.submit(_most_bytes_a_key, tmp_path / "data", at_a_time).result()
    print(f"{worst:.1f} bytes a key")
    assert worst <= 200, f"{worst:.1f} bytes a key"
