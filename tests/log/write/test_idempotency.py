"""Keys that are remembered: a write that comes again is answered, not repeated."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from topics.log.write import idempotency
from topics.log.write.append import AppendOp
from topics.log.write.append_request import parse_append
from topics.values.errors import ApiError

WINDOW_MS = 100


@pytest.fixture
def lab(lab: Lab) -> Lab:
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    return lab


def test_a_key_counts_inside_its_window(lab: Lab) -> None:
    first = lab.write("t", 1, 2, key="a")
    lab.write("t", 3, key="b")
    lab.clock.advance(WINDOW_MS)
    again = lab.write("t", "other", key="a")
    assert again.deduped
    assert (again.first_seq, again.last_seq) == (first.first_seq, first.last_seq)
    lab.clock.advance(1)
    assert not lab.write("t", 4, key="a").deduped
    assert lab.seqs("t") == [1, 2, 3, 4]


def submit(lab: Lab, key: str) -> list[object]:
    """Not committed yet."""
    answers: list[object] = []
    request = parse_append(b'{"records":[{"data":1}]}', key.encode())
    lab.engine.append("t", request, answers.append, answers.append)
    return answers


def test_who_comes_while_the_first_is_under_way_waits_for_it(lab: Lab) -> None:
    first, second, third = (submit(lab, "a") for _ in range(3))
    assert not first
    assert not second
    lab.engine.queue.sync_now()
    ops = [answers[0] for answers in (first, second, third)]
    assert [(op.first_seq, op.deduped) for op in ops if isinstance(op, AppendOp)] == [
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


def test_keys_that_are_over_are_swept_out(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "_SWEEP_AT", 4)
    lab.drop("t")
    lab.put("t", idempotency_window_ms=WINDOW_MS)
    for number in range(4):
        lab.write("t", number, key=str(number))
        lab.clock.advance(WINDOW_MS // 2 + 1)
    memory = lab.topic("t").idempotency
    assert memory is not None
    assert memory.find("0", lab.engine.now()) is None
    assert len(memory._by_key) == 2, "the last two are inside their window"
