"""Keys over a restart: a retry is recognised whenever the records of the first write are still there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from tests.support.appending import Appended, append, body_of
from topics.log.write.idempotency import keys_kept_ms

WINDOW_MS = 1000


def told(op: Appended) -> tuple[int, int, int, int]:
    return op.first_seq, op.last_seq, op.head_seq, op.count


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    return lab


@pytest.mark.parametrize("everything", [True, False])
def test_snapshots_keep_keys_when_the_journal_has_gone(lab: Lab, everything: bool) -> None:
    first = lab.write("t", 1, 2, key="a")
    for _ in range(3):
        lab.engine.rotate()
        lab.checkpoint(everything=everything)
    lab.write("t", 3, key="b")
    lab.restart()
    assert told(lab.write("t", 9, key="a")) == told(first)
    assert lab.write("t", 9, key="b").deduped
    assert lab.seqs("t") == [1, 2, 3]


def test_the_window_goes_on_while_no_server_runs(lab: Lab) -> None:
    lab.write("t", 1, key="a")
    lab.clock.advance(WINDOW_MS // 2)
    lab.write("t", 2, key="b")
    lab.checkpoint()
    lab.stop()
    lab.clock.advance(WINDOW_MS // 2)
    lab.open()
    assert lab.write("t", 1, key="a").deduped, "the window was not over"
    lab.clock.advance(1)
    assert not lab.write("t", 1, key="a").deduped
    lab.restart()
    assert lab.write("t", 2, key="b").deduped
    lab.clock.advance(WINDOW_MS // 2)
    assert not lab.write("t", 2, key="b").deduped
    assert lab.write("t", 1, key="a").deduped, "its second use counts"


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_changed_window_is_what_it_was(lab: Lab, checkpoint: bool) -> None:
    lab.write("t", 1, key="a")
    lab.clock.advance(WINDOW_MS // 2)
    lab.write("t", 2, key="b")
    lab.clock.advance(10)
    lab.put("t", idempotency_window_ms=100)
    lab.put("t", idempotency_window_ms=10 * WINDOW_MS)
    if checkpoint:
        lab.checkpoint()
    lab.clock.advance(5 * WINDOW_MS)
    lab.restart()
    assert lab.write("t", 2, key="b").deduped
    assert not lab.write("t", 1, key="a").deduped, "the shorter window had ended it"


@pytest.mark.parametrize("checkpoint", [True, False])
def test_ephemeral_keys_go_with_their_records(lab: Lab, checkpoint: bool) -> None:
    """Which of them that is was decided when they were written."""
    lab.write("t", 1, key="kept")
    lab.put("t", idempotency_window_ms=WINDOW_MS, durability="ephemeral")
    lab.write("t", 2, key="gone")
    assert lab.write("t", 2, key="gone").deduped
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    lab.write("t", 3, key="kept too")
    if checkpoint:
        lab.checkpoint()
    lab.restart()
    assert [lab.write("t", 0, key=key).deduped for key in ("kept", "gone", "kept too")] == [True, False, True]
    assert lab.seqs("t") == [1, 3, 4]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_a_bound_has_forgotten_stays_forgotten(make_lab: Callable[..., Lab], checkpoint: bool) -> None:
    lab = make_lab(max_idempotency_keys_per_topic=2)
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    for number in range(4):
        lab.clock.advance(10)
        lab.write("t", number, key=str(number))
    if checkpoint:
        lab.checkpoint()
    lab.restart()
    assert lab.engine.keys.count == 2
    assert keys_kept_ms(lab.topic("t"), lab.engine.now()) == 20
    assert [lab.write("t", 0, key=str(number)).deduped for number in (3, 2, 1)] == [True, True, False]


def test_a_snapshot_has_no_key_of_a_write_that_waits(lab: Lab) -> None:
    """It is in the journal behind the snapshot, or nowhere."""
    lab.write("t", 1, key="a")
    append(lab.engine, "t", body_of(2), lambda _: None, lambda _: None, key=b"b")
    body, replay_from = lab.checkpointer.capture()
    lab.checkpointer.write_snapshot(body)
    lab.checkpointer.release(replay_from)
    lab.kill()
    lab.open()
    assert [lab.write("t", 0, key=key).deduped for key in "ab"] == [True, False]


def test_no_key_is_written_anywhere(lab: Lab) -> None:
    lab.write("t", 1, key="a secret of the client")
    lab.checkpoint(everything=True)
    lab.stop()
    files = [path for path in lab.directory.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secret of" in path.read_bytes()]


def test_each_log_has_a_salt_of_its_own(make_lab: Callable[..., Lab], lab: Lab) -> None:
    """And keeps it as long as a key is remembered."""
    salt = lab.engine.keys.salt
    lab.write("t", 1, key="a")
    lab.restart()
    assert lab.engine.keys.salt == salt
    lab.checkpoint()
    lab.restart()
    assert lab.engine.keys.salt == salt
    lab.drop("t")
    lab.checkpoint()
    lab.restart()
    assert lab.engine.keys.salt != salt
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    lab.write("t", 1, key="a")
    lab.restart()
    assert lab.write("t", 1, key="a").deduped
