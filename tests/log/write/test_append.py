"""Appends of one turn: each gets its own result, and limits count the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.log.harness import T0, Lab, records, short_of_memory
from tests.support.appending import Appended, ByHand, append, body_of, write_of
from topics.core.errors import ApiError
from topics.core.settings import MAX_SEQ
from topics.log import delete_records
from topics.log.write.append import AppendOp
from topics.log.write.group import append_group
from topics.storage.frame import FrameDraft, Kind


def test_writes_under_way_count_in_the_quota_of_the_server(make_lab: Callable[..., Lab]) -> None:
    """Neither many small ones at once nor ones that wait for the disk get past it."""
    lab = make_lab(max_total_bytes=10)
    lab.put("t", durability="fsync")
    lab.put("u")
    answers: list[object] = []
    for name in ("t", "u"):
        append(lab.engine, name, body_of(12345), answers.append, answers.append)
    lab.engine.queue.flush()
    with pytest.raises(ApiError, match="max_total_bytes"):
        append(lab.engine, "t", body_of(1), answers.append, answers.append)
    lab.engine.queue.sync_now()
    assert lab.engine.totals.bytes == 10
    with pytest.raises(ApiError, match="max_total_bytes"):
        lab.write("u", 1)


def test_what_has_aged_makes_just_enough_room(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_total_bytes=10)
    lab.put("aging", ttl_ms=100)
    lab.write("aging", 12345)
    lab.clock.advance(101)
    assert lab.write("t", 12345).last_seq == 1
    lab.write("aging", 12345)
    lab.clock.advance(101)
    assert lab.write("t", 12345).last_seq == 2
    assert lab.engine.totals.bytes == 10


@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 4}], ids=str)
def test_a_topic_that_rejects_takes_as_much_as_its_cap_says(lab: Lab, cap: dict[str, int]) -> None:
    """Writes that are under way count, and are not counted twice."""
    lab.put("t", discard="reject", durability="fsync", **cap)
    answers: list[Any] = []
    for _ in range(3):
        append(lab.engine, "t", body_of(12), answers.append, answers.append)
    assert answers == []
    lab.engine.queue.sync_now()
    assert [type(answer) for answer in answers] == [Appended, Appended, ApiError]
    with pytest.raises(ApiError, match="is full") as refusal:
        lab.write("t", 12)
    assert refusal.value.detail == answers[2].detail
    assert refusal.value.detail["head_seq"] == 2
    lab.delete("t", before=2)
    assert lab.write("t", 34).last_seq == 3


def test_no_record_is_older_than_the_one_before_it(lab: Lab) -> None:
    """A copy may have come from a clock that was ahead."""
    lab.write("t", 1)
    lab.topic("t").last_ts += 50
    lab.write("t", 2)
    lab.clock.advance(60)
    lab.write("t", 3)
    assert [record["$ts"] - T0 for record in records(lab.diff("t"))] == [0, 50, 60]


def test_the_last_seq_is_the_last(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(seq_base=MAX_SEQ - 1)
    assert lab.write("t", 1, 2).last_seq == MAX_SEQ
    with pytest.raises(ApiError, match="used up its seqs"):
        lab.write("t", 3)
    assert lab.seqs("t") == [MAX_SEQ - 1, MAX_SEQ]
    lab.restart()
    assert lab.seqs("t") == [MAX_SEQ - 1, MAX_SEQ]


# --- out of memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["ephemeral", "disk", "fsync"])
@pytest.mark.parametrize("before", [0, 1, 3, 4, 300])
def test_a_write_without_memory_for_it_leaves_nothing_behind(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, before: int, durability: str
) -> None:
    lab.put("t", durability=durability)
    lab.write_each("t", before, tag="a", node="n", meta={"k": 1})
    was = lab.state("t")
    with monkeypatch.context() as patch:
        short_of_memory(patch)
        with pytest.raises(ApiError) as caught:
            lab.write("t", {"data": "lost", "tag": "b"}, {"data": "lost", "meta": {"k": 2}})
    assert (caught.value.code, caught.value.retry_after_s) == ("throttled", 1)
    assert lab.state("t") == was
    op = lab.write("t", {"data": "kept", "tag": "b"})
    assert (op.first_seq, op.head_seq) == (before + 1, before + 1)
    assert lab.delete("t", match="b") == 1
    lab.checkpoint(everything=True)
    live = lab.seqs("t")
    lab.restart()
    assert lab.lines("t")[0] == before + 1
    if durability != "ephemeral":
        assert lab.seqs("t") == live == list(range(1, before + 1))


@pytest.mark.parametrize("after", [0, 1])
def test_a_group_is_written_whole_or_ends_writing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    lab.write("t", 1)
    lab.write("u", 1)
    write = write_of(body_of(2))
    refusals: list[ApiError] = []

    def nothing_more(_: list[AppendOp]) -> FrameDraft:
        return FrameDraft(Kind.CLOCK, ts=lab.engine.now())

    with monkeypatch.context() as patch:
        short_of_memory(patch, after=after)
        writes = [(lab.topic("t"), [write]), (lab.topic("u"), [write])]
        try:
            append_group(
                lab.engine,
                writes,
                lab.engine.now(),
                nothing_more,
                lambda: None,
                refusals.append,
                sync=True,
            )
        except ApiError as error:
            refusals.append(error)
    lab.engine.queue.sync_now()
    assert [refusal.code for refusal in refusals] == [["throttled", "internal"][after]]
    assert (lab.engine.queue.refusals.failure is None) is (after == 0)
    assert (lab.seqs("t"), lab.seqs("u")) == ([1], [1])
    lab.restart()
    assert lab.write("t", 3).first_seq == 2
    assert (lab.seqs("t"), lab.seqs("u")) == ([1, 2], [1])


@pytest.mark.parametrize(("config", "is_allowed"), [(b"", True), (b',"config":{"ttl_ms":5}', False)])
def test_a_configuration_has_to_be_allowed(lab: Lab, config: bytes, is_allowed: bool) -> None:
    body = b'{"records":[{"data":1}]%b}' % config
    if is_allowed:
        append(lab.engine, "t", body, lambda _: None, pytest.fail, may_configure=False)
    else:
        with pytest.raises(ApiError) as refusal:
            append(lab.engine, "t", body, lambda _: None, pytest.fail, may_configure=False)
        assert refusal.value.code == "forbidden"
    assert ("t" in lab.engine.by_name) == is_allowed
    append(lab.engine, "u", body, lambda _: None, pytest.fail)
    assert "u" in lab.engine.by_name


def test_what_a_cap_has_taken_does_not_come_back_where_a_restart_counts_less(lab: Lab) -> None:
    """Records of class ephemeral counted, and are gone after it."""
    lab.put("t", cap_records=2)
    lab.write("t", 1)
    lab.put("t", cap_records=2, durability="ephemeral")
    lab.write("t", 2)
    lab.put("t", cap_records=2)
    lab.write("t", 3)
    assert (lab.seqs("t"), lab.gaps("t")) == ([2, 3], [(1, 1, "cap")])
    lab.restart()
    assert lab.seqs("t") == [3]
    assert lab.gaps("t")[0][0] == 1


# --- one turn ---------------------------------------------------------------------------------------------


def seqs_or_code(results: Sequence[Appended | ApiError]) -> list[int | str]:
    """The first seq of each append, or the code of its refusal."""
    return [one.code if isinstance(one, ApiError) else one.first_seq for one in results]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (("t", b'{"records":[{"data":}]}'), "invalid_request"),
        (("t", b'{"records":[{"data":1,"tga":"x"}]}'), "invalid_request"),
        (("t", body_of(*range(10_001))), "batch_too_large"),
        (("full", body_of(2)), "topic_full"),
        (("full", body_of(2, 3)), "record_too_large"),
        (("t", body_of(1), "k" * 257), "invalid_request"),
        (("missing", b'{"records":[{"data":1}],"create":false}'), "topic_not_found"),
        (("t", b'{"records":[{"data":1}],"config":{"ttl_ms":"x"}}'), "invalid_request"),
        (("not a name", body_of(1)), "invalid_request"),
    ],
    ids=range(9),
)
@pytest.mark.usefixtures("both_codecs")
def test_a_refusal_concerns_one_request_of_a_turn(lab: Lab, request_: tuple[str, bytes], code: str) -> None:
    lab.put("full", cap_records=1, discard="reject")
    lab.write("full", 1)
    lab.put("t")
    results = lab.turn(
        ("t", body_of(1)), ("u", body_of(1)), request_, ("t", body_of(2)), ("u", body_of(2, 3)), request_
    )
    assert seqs_or_code(results) == [1, 1, code, 2, 2, code]
    assert lab.engine.queue.refusals.failure is None
    lab.restart()
    assert (lab.seqs("t"), lab.seqs("u"), lab.seqs("full")) == ([1, 2], [1, 2, 3], [1])


def test_keys_see_earlier_requests_of_the_turn(lab: Lab) -> None:
    lab.put("t", idempotency_window_ms=1000)
    results = lab.turn(
        ("t", body_of(1, 2), "a"),
        ("t", body_of(3), "b"),
        ("t", body_of("again"), "a"),
        ("t", body_of(4)),
        ("t", body_of("again"), "b"),
    )
    told = [(one.first_seq, one.count, one.deduped) for one in results if isinstance(one, Appended)]
    assert told == [(1, 2, False), (3, 1, False), (1, 2, True), (4, 1, False), (3, 1, True)]
    for _ in range(2):
        assert lab.seqs("t") == [1, 2, 3, 4]
        assert [lab.write("t", 0, key=key).first_seq for key in "ab"] == [1, 3]
        lab.restart()


@pytest.mark.parametrize("cap", [{"cap_records": 3}, {"cap_bytes": 3}], ids=str)
def test_caps_see_earlier_requests_of_the_turn(lab: Lab, cap: dict[str, int]) -> None:
    lab.put("rejects", discard="reject", **cap)
    lab.put("evicts", **cap)
    bodies = [body_of(1, 2), body_of(3, 4), body_of(5)]
    results = lab.turn(*[(name, body) for name in ("rejects", "evicts") for body in bodies])
    assert seqs_or_code(results) == [1, "topic_full", 3, 1, 3, 5]
    assert (lab.seqs("rejects"), lab.seqs("evicts")) == ([1, 2, 3], [3, 4, 5])
    assert lab.gaps("evicts") == [(1, 2, "cap")]


def test_the_limit_of_the_log_sees_earlier_requests_of_the_turn(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_total_bytes=5)
    results = lab.turn(*[(name, body_of(12)) for name in "tutu"], ("t", body_of(1)))
    assert seqs_or_code(results) == [1, 1, "throttled", "throttled", 2]
    assert lab.engine.totals.bytes == 5


def test_deletes_see_earlier_requests_of_the_turn(lab: Lab) -> None:
    lab.put("t")
    results: list[object] = []
    for data in (1, 2):
        lab.engine.append(ByHand("t", body_of(data), results.append, results.append))
    delete_records(lab.engine, lab.topic("t"), 3, None, results.append, results.append)
    lab.engine.append(ByHand("t", body_of(3), results.append, results.append))
    lab.engine.queue.sync_now()
    assert [one.first_seq if isinstance(one, Appended) else one for one in results] == [1, 2, 2, 3]
    for _ in range(2):
        assert lab.seqs("t") == [3]
        lab.restart()


def test_a_topic_that_a_request_creates_is_there_for_the_next_one_of_the_turn(lab: Lab) -> None:
    capped = b'{"records":[{"data":1}],"config":{"cap_records":1,"discard":"reject"}}'
    results = lab.turn(("t", capped), ("t", body_of(2)), ("u", body_of(1)))
    assert seqs_or_code(results) == [1, "topic_full", 1]
    assert [one.created for one in results if isinstance(one, Appended)] == [True, True]


def test_appends_of_a_turn_share_a_frame_for_each_topic(lab: Lab) -> None:
    for name in "tu":
        lab.put(name)
    before = len(lab.frames())
    lab.turn(*[(name, body_of(1)) for name in "tutut"])
    added = [frame for frame in lab.frames()[before:] if frame.kind == Kind.APPEND]
    assert len(added) == 2


def test_the_class_of_one_topic_does_not_delay_another_of_the_same_flush(lab: Lab) -> None:
    lab.put("slow", durability="fsync")
    lab.put("quick")
    results: list[str] = []
    for name in ("slow", "quick"):
        lab.engine.append(ByHand(name, body_of(1), lambda done: results.append(done.topic.name), pytest.fail))
    lab.engine.queue.flush()
    assert results == ["quick"]
    lab.engine.queue.sync_now()
    assert results == ["quick", "slow"]
