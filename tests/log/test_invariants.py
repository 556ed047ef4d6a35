"""Invariants of a topic: a violation is refused with its numbers, and writes end until a restart."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.harness import T0, Lab
from tests.support.appending import ByHand, append, body_of, rows_of, write_of
from topics.core.errors import ApiError, InvariantViolated, OutcomeUnknown, WritesOff
from topics.log.remove import ledger
from topics.log.run import HotColumns, Run
from topics.log.seal.checkpoint import capture_topic
from topics.log.topic import Topic
from topics.log.write.group import Amount, admit_group, append_group
from topics.storage.frame import FrameDraft, Kind


@pytest.fixture
def topic(lab: Lab) -> Topic:
    """Three records are visible, and two more are assigned."""
    lab.put("t")
    lab.write("t", 1, 2, 3)
    topic = lab.topic("t")
    topic.assign_ahead(2, 2, T0)
    return topic


def run_of(topic: Topic, first_seq: int, count: int) -> Run:
    run = Run(topic.id, first_seq, HotColumns(first_seq), framed=False)
    run.extend(rows_of([b"1"] * count, first_seq, T0))
    return run


@pytest.mark.parametrize("first_seq", [1, 5, 7])
def test_records_have_to_follow_the_last_assigned_seq(topic: Topic, first_seq: int) -> None:
    before = capture_topic(topic), topic.assigned, topic.pending_count
    with pytest.raises(InvariantViolated, match=f"seq {first_seq} cannot follow seq 5"):
        topic.append(rows_of([b"1"], first_seq, T0), 0)
    assert (capture_topic(topic), topic.assigned, topic.pending_count) == before
    topic.append(rows_of([b"1"], 6, T0), 0)
    assert topic.assigned == 6


@pytest.mark.parametrize(("first_seq", "count"), [(3, 1), (3, 3), (5, 2), (6, 1)])
def test_an_imported_run_lies_between_head_and_assigned(topic: Topic, first_seq: int, count: int) -> None:
    runs = len(topic.runs)
    with pytest.raises(
        InvariantViolated,
        match=f"import seqs {first_seq} to {first_seq + count - 1} between head 3 and assigned 5",
    ):
        topic.import_run(run_of(topic, first_seq, count))
    assert len(topic.runs) == runs
    topic.import_run(run_of(topic, 4, 2))


@pytest.mark.parametrize(("count", "size"), [(3, 2), (2, 3), (6, 2)])
def test_no_more_is_published_than_was_assigned(topic: Topic, count: int, size: int) -> None:
    with pytest.raises(
        InvariantViolated, match=rf"head {3 + count}, assigned 5, pending {2 - count} records"
    ):
        topic.publish(count, size, T0)


@pytest.mark.parametrize(("count", "size"), [(-4, 0), (0, -4)])
def test_counts_are_not_negative(topic: Topic, count: int, size: int) -> None:
    with pytest.raises(InvariantViolated, match=rf"{3 + count} live records with {3 + size} bytes"):
        topic.add_live(count, size)


def test_the_evict_floor_is_not_above_the_earliest_seq(topic: Topic) -> None:
    topic.check_marks()
    topic.raise_line(ledger.CAP, 1)
    with pytest.raises(InvariantViolated, match="evict_floor 2, earliest_seq 1, head 3, assigned 5"):
        topic.check_marks()


# --- writes end -------------------------------------------------------------------------------------------


def publish_too_much(topic: Topic) -> None:
    topic.pending_count -= 1


def raise_evict_floor(topic: Topic) -> None:
    topic.raise_line(ledger.TTL, topic.head)


def check_that_writes_have_ended(lab: Lab, caplog: pytest.LogCaptureFixture, numbers: str) -> None:
    assert lab.engine.writes_off is WritesOff.STORAGE_FAILED
    assert lab.engine.read_only
    with pytest.raises(ApiError, match="writes are off until restart"):
        lab.write("other", 1)
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [numbers in record.getMessage() for record in told] == [True]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize(
    ("damage", "numbers"),
    [
        (publish_too_much, "head 4, assigned 4, pending -1 records and 0 bytes"),
        (raise_evict_floor, "evict_floor 4, earliest_seq 2, head 4, assigned 4"),
    ],
)
def test_a_violation_while_records_become_visible(
    lab: Lab,
    caplog: pytest.LogCaptureFixture,
    durability: str,
    damage: Callable[[Topic], None],
    numbers: str,
) -> None:
    """The journal has the records, so only a restart shows the outcome."""
    lab.put("t", durability=durability, cap_records=3)
    lab.write("t", 1, 2, 3)
    results: list[Any] = []
    append(lab.engine, "t", body_of(4), results.append, results.append)
    damage(lab.topic("t"))
    lab.engine.queue.sync_now()
    assert [type(result) for result in results] == [OutcomeUnknown]
    check_that_writes_have_ended(lab, caplog, numbers)
    lab.restart()
    assert lab.seqs("t") == [2, 3, 4]
    assert lab.write("t", 5).first_seq == 5


def test_a_violation_while_seqs_are_assigned(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the turn is written, and each request fails once."""
    for name in "tu":
        lab.put(name, idempotency_window_ms=1000)
    add = Topic.append

    def append_elsewhere(self: Topic, rows: Any, position: int, **more: Any) -> None:
        add(self, rows_of([b"1"], 9, T0) if self.name == "u" else rows, position, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Topic, "append", append_elsewhere)
        results = lab.turn(
            ("t", body_of(1), "k"), ("u", body_of(1), "k"), ("u", body_of(2)), ("v", body_of(1))
        )
    assert [isinstance(result, ApiError) and result.code for result in results] == ["internal"] * 4
    check_that_writes_have_ended(lab, caplog, "seq 9 cannot follow seq 0")
    assert (lab.engine.keys.count, lab.engine.totals.pending_bytes) == (0, 0)
    lab.restart()
    assert lab.turn(("t", body_of(1), "k"))[0].first_seq == 1
    assert lab.seqs("u") == []


def test_a_violation_while_several_topics_are_appended_to(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tu":
        lab.put(name)
    add, failures = Topic.append, list[ApiError]()

    def append_elsewhere(self: Topic, rows: Any, position: int, **more: Any) -> None:
        add(self, rows_of([b"1"], 9, T0) if self.name == "u" else rows, position, **more)

    monkeypatch.setattr(Topic, "append", append_elsewhere)
    write = write_of(body_of(1))
    append_group(
        lab.engine,
        [(lab.topic("t"), [write]), (lab.topic("u"), [write])],
        lab.engine.now(),
        lambda _: FrameDraft(Kind.CLOCK),
        lambda: pytest.fail("it was committed"),
        failures.append,
        sync=True,
    )
    assert [failure.code for failure in failures] == ["internal"]
    check_that_writes_have_ended(lab, caplog, "seq 9 cannot follow seq 0")
    assert lab.topic("t").assigned == 0


def test_a_violation_that_a_reader_finds(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.put("t", ttl_ms=100)
    lab.write("t", 1)
    lab.clock.advance(60)
    lab.write("t", 2)
    lab.topic("t").raise_line(ledger.CAP, 2)
    lab.clock.advance(60)
    lab.engine.refresh(lab.topic("t"))
    assert lab.diff("t").caught_up
    check_that_writes_have_ended(lab, caplog, "evict_floor 3, earliest_seq 2, head 2, assigned 2")


def test_a_violation_in_an_expiry_that_makes_room_for_an_append(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Age has to make room in a topic that contradicts itself, before records go to another one."""
    lab.kill()
    lab.settings["max_total_bytes"] = 8
    lab.open()
    lab.put("t", ttl_ms=100)
    lab.write("t", 1)
    lab.clock.advance(60)
    lab.write("t", 2)
    lab.topic("t").raise_line(ledger.CAP, 2)
    lab.clock.advance(60)
    for results in (lab.turn(("u", body_of(12345678)), ("u", body_of(1))), lab.turn(("u", body_of(1)))):
        assert [isinstance(result, ApiError) and result.code for result in results][-1] == "internal"
    check_that_writes_have_ended(lab, caplog, "evict_floor 3, earliest_seq 2, head 2, assigned 2")
    amounts = [Amount(lab.topic("t"), 1, 9)]
    with pytest.raises(ApiError, match="max_total_bytes"):
        admit_group(lab.engine, amounts, lab.engine.now())


# --- defects ----------------------------------------------------------------------------------------------


class Counted(ByHand):
    """A request that counts its answers."""

    def __init__(self, name: str, body: bytes, key: bytes | None = None) -> None:
        self.answers: list[Any] = []
        super().__init__(name, body, self.answers.append, self.answers.append, key)


def requests_of_a_turn() -> list[Counted]:
    """A mistake, a repeated key, a topic that is created, and several topics that exist."""
    return [
        Counted("t", b"{"),
        Counted("t", body_of(1), b"known"),
        Counted("t", body_of(2), b"new"),
        Counted("t", body_of(2), b"new"),
        Counted("u", body_of(3)),
        Counted("created", body_of(4)),
        Counted("v", body_of(5)),
    ]


PLACES = [
    "topics.log.write.append._checked_config",
    "topics.log.write.append.create_topic",
    "topics.log.write.append._may_create",
    "topics.log.write.append.extend_if_short",
    "topics.log.write.append.codec.decode",
    "topics.log.write.append.codec.encode",
    "topics.log.write.idempotency.TopicKeys.digest",
    "topics.log.write.idempotency.TopicKeys.remember",
    "topics.log.topic.Topic.append",
    "topics.log.write.commit_queue.CommitQueue.require_growth",
]


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_each_request_of_a_turn_is_answered_once_whatever_is_defective(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, place: str, after: int
) -> None:
    """Also when other requests of the turn were answered or had their seqs before the defect showed."""
    for name in "tuv":
        lab.put(name, idempotency_window_ms=1000)
    lab.write("t", 0, key="known")
    requests = requests_of_a_turn()
    for request in requests:
        lab.engine.append(request)
    with monkeypatch.context() as patch:
        calls = fail_from(patch, place, after)
        lab.engine.queue.sync_now()
    lab.engine.queue.sync_now()
    assert [len(request.answers) for request in requests] == [1] * len(requests)
    if calls[0] > after:
        assert lab.engine.writes_off is WritesOff.STORAGE_FAILED
        assert lab.engine.totals.pending_bytes == 0
    else:
        assert lab.engine.writes_off is None
    lab.restart()
    assert lab.write("t", 9).first_seq > 1


def fail_from(patch: pytest.MonkeyPatch, place: str, after: int) -> list[int]:
    """Let a function raise after so many calls; returns how often it was called."""
    owner, _, name = place.rpartition(".")
    target = pkgutil.resolve_name(owner)
    function, calls = getattr(target, name), [0]

    def called(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise RuntimeError("a defect")
        return function(*args, **more)

    patch.setattr(target, name, called)
    return calls
