"""What a router does with records: order, seqs, filters, hops, full destinations, loss at the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from tests.log.harness import gap
from topics.flow.routers.definitions import Options
from topics.log.write.batch import parse_append
from topics.storage.frame import Kind
from topics.storage.journal import SyncTicket


@pytest.fixture
def lab(tmp_path: Path) -> RouterLab:
    return RouterLab(tmp_path)


def seqs_and_data(lab: RouterLab, name: str) -> list[tuple[int, Any]]:
    return [(record["$seq"], record["data"]) for record in lab.records(name)]


# --- what is copied -----------------------------------------------------------------------------------


def test_nothing_older_than_the_router_is_copied(lab: RouterLab) -> None:
    lab.write_each("a", 50)
    lab.route("r", "a", "b")
    assert lab.records("b") == []
    lab.write("a", "new")
    assert seqs_and_data(lab, "b") == [(1, "new")]
    assert lab.router("r").forwarded == 1


def test_a_copy_keeps_its_content_and_gets_seq_and_time_of_its_own(lab: RouterLab) -> None:
    lab.write("b", "here before")
    lab.route("r", "a", "b")
    lab.write("a", {"data": {"n": 1.50}, "tag": "t", "node": "n1", "meta": {"k": [1, 2]}}, "plain")
    lab.clock.advance(500)
    copies = lab.records("b")[1:]
    now = lab.clock.now_ms()
    assert copies == [
        {"$seq": 2, "$ts": now, "$node": "n1", "$tag": "t", "data": {"n": 1.5}, "meta": {"k": [1, 2]}},
        {"$seq": 3, "$ts": now, "data": "plain"},
    ]


def test_bytes_of_data_and_meta_are_not_touched(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    body = b'{"records":[{"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}]}'
    lab.commit(lambda done, fail: lab.engine.append("a", parse_append(body), done, fail))
    row = lab.diff("b").rows
    assert b'"data":{"z":1.00,"a":1e2,"a":"\\u00e9"},"meta":{"x":1.0,"x":2}}' in row


def test_node_and_tag_can_be_left_behind(lab: RouterLab) -> None:
    lab.route("r", "a", "b", preserve_node=False, preserve_tag=False)
    lab.write("a", {"data": 1, "tag": "t", "node": "n"})
    [copy] = lab.records("b")
    assert set(copy) == {"$seq", "$ts", "data"}
    assert lab.delete("b", match="t") == 0


def test_a_kept_tag_works_for_deletes_at_the_destination(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", {"data": 1, "tag": "t"}, {"data": 2, "tag": "u"})
    lab.records("b")
    assert lab.delete("b", match="t") == 1
    assert lab.data("b") == [2]
    assert lab.data("a") == [1, 2]


def test_the_filter_passes_matching_tags_only(lab: RouterLab) -> None:
    lab.route("exact", "a", "b", match="x")
    lab.route("prefix", "a", "c", match=["tag", "Glob", "x*"])
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2, "tag": "xy"}, {"data": 3, "tag": "y"}, {"data": 4})
    lab.write("a", {"data": 5, "tag": "x"})
    assert seqs_and_data(lab, "b") == [(1, 1), (2, 5)]
    assert seqs_and_data(lab, "c") == [(1, 1), (2, 2), (3, 5)]
    assert lab.router("exact").forwarded == 2
    assert lab.router("exact").cursor == 5


def test_changing_the_filter_keeps_the_position(lab: RouterLab) -> None:
    lab.route("r", "a", "b", match="x")
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2, "tag": "y"})
    assert not lab.route("r", "a", "b", match="y")
    lab.write("a", {"data": 3, "tag": "x"}, {"data": 4, "tag": "y"})
    assert lab.data("b") == [1, 4]
    lab.restart()
    assert lab.data("b") == [1, 4]
    lab.write("a", {"data": 5, "tag": "x"}, {"data": 6, "tag": "y"})
    assert lab.data("b") == [1, 4, 6]


def test_deleted_records_are_passed_over_in_silence(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", {"data": 1, "tag": "x"}, {"data": 2}, {"data": 3, "tag": "x"})
    lab.delete("a", match="x")
    assert seqs_and_data(lab, "b") == [(1, 2)]
    assert lab.gaps("b") == []
    assert lab.router("r").forwarded == 1


def test_direct_writes_and_copies_share_the_seqs(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", "copy 1")
    lab.records("b")
    lab.write("b", "direct")
    lab.write("a", "copy 2")
    assert seqs_and_data(lab, "b") == [(1, "copy 1"), (2, "direct"), (3, "copy 2")]


def test_one_step_moves_all_destinations_with_one_frame(lab: RouterLab) -> None:
    for number in range(20):
        lab.route(f"r{number}", "a", f"b{number}", match="x" if number == 7 else None)
    frames = lab.engine.counters.frames
    before = len(lab.frames())
    lab.write("a", {"data": 1}, {"data": 2})
    lab.background()
    new = [frame.kind for frame in lab.frames()[before:]]
    assert new == [Kind.APPEND, Kind.ROUTE]
    assert lab.engine.counters.frames == frames + 2
    assert lab.data("b3") == [1, 2]
    assert lab.data("b7") == []


@pytest.mark.parametrize("count", [1, 3, 100])
def test_destinations_of_one_step_number_their_copies_themselves(lab: RouterLab, count: int) -> None:
    lab.pulls = False
    lab.write("c", *range(9))
    lab.write("d", 1)
    lab.clock.advance(50)
    for dest in "bcde":
        lab.route(f"to-{dest}", "a", dest)
    lab.write("a", *[{"data": "x" * n, "node": f"n{n % 3}"} for n in range(count)])
    assert lab.routers.step(lab.topic("a"))
    lab.engine.queue.sync_now()
    now = lab.clock.now_ms()
    for sealed in (False, True):
        for dest, head in (("b", 0), ("c", 9), ("d", 1), ("e", 0)):
            assert [(r["$seq"], r["$ts"], r["data"], r["$node"]) for r in lab.records(dest)[head:]] == [
                (head + n + 1, now, "x" * n, f"n{n % 3}") for n in range(count)
            ]
        if not sealed:
            lab.checkpoint(everything=True)


def test_a_step_does_not_repeat_the_records(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", "x" * 10_000)
    before = lab.engine.journal.position
    lab.records("b")
    assert lab.engine.journal.position - before < 300


# --- chains and loops ---------------------------------------------------------------------------------


def test_a_chain_ends_after_eight_hops(lab: RouterLab) -> None:
    for hop in range(10):
        lab.route(f"r{hop}", f"t{hop}", f"t{hop + 1}")
    lab.write("t0", "go")
    lab.background()
    assert [len(lab.records(f"t{hop}")) for hop in range(11)] == [1] * 9 + [0, 0]
    assert lab.router("r8").forwarded == 0
    lab.write("t8", "afresh")
    lab.background()
    assert lab.data("t10") == ["afresh"]


def test_mirrors_echo_until_the_hops_are_used_up(lab: RouterLab) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    lab.write("a", {"data": 1, "node": "me"})
    lab.background()
    assert (lab.topic("a").head, lab.topic("b").head) == (5, 4)
    assert {record["$node"] for record in lab.records("a")} == {"me"}
    page = lab.diff("a", nodes=frozenset({"me"}))
    assert (page.count, page.caught_up) == (0, True)


@pytest.mark.parametrize("sealed", [False, True])
def test_hops_survive_a_restart(lab: RouterLab, sealed: bool) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    lab.write("a", 1)
    lab.records("b")
    if sealed:
        lab.checkpoint(everything=True)
    lab.restart()
    lab.background()
    assert (lab.topic("a").head, lab.topic("b").head) == (5, 4)


def test_a_loss_goes_as_far_as_a_record_would_have(lab: RouterLab) -> None:
    for hop in range(10):
        lab.route(f"r{hop}", f"t{hop}", f"t{hop + 1}")
    lab.put("t0", cap_records=1)
    lab.write("t0", 1, 2)
    lab.background()
    assert [lab.gaps(f"t{hop}") for hop in range(1, 9)] == [[(1, 1, "source_trim")]] * 8
    assert [lab.topic(f"t{hop}").head for hop in range(11)] == [2] * 9 + [0, 0]
    assert lab.router("r8").cursor == 2


@pytest.mark.parametrize("restart", ["never", "from the journal", "from a snapshot"])
def test_a_loss_in_a_loop_comes_to_rest(lab: RouterLab, restart: str) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    lab.put("a", cap_records=1)
    lab.write("a", 1, 2)
    for name in "bab":
        lab.routers.pull(lab.topic(name))
    assert (lab.topic("a").head, lab.topic("b").head) == (4, 4)
    if restart != "never":
        if restart == "from a snapshot":
            lab.checkpoint(everything=True)
        lab.restart()
    # Not for ever, should it not come to rest.
    looks = iter(range(1000))
    lab.routers.forward(lambda: next(looks, None) is None)
    assert (lab.topic("a").head, lab.topic("b").head) == (10, 8)
    assert lab.router("ab").forwarded == lab.router("ba").forwarded == 8


# --- exactly once -------------------------------------------------------------------------------------


def test_a_copy_carries_where_it_came_from(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", {"data": 1, "meta": {"k": 1}}, 2)
    epoch = lab.topic("a").id
    first, second = lab.records("b")
    assert list(first["meta"]) == ["k", "_topics_router"]
    assert first["meta"]["_topics_router"] == {
        "idempotency_key": f"router:r:{epoch}:{epoch}:1",
        "router": "r",
        "source_topic": "a",
        "source_topic_id": epoch,
        "source_epoch": epoch,
        "source_seq": 1,
    }
    assert second["meta"]["_topics_router"]["source_seq"] == 2
    lab.restart()
    assert lab.records("b") == [first, second]


def test_a_full_meta_is_wrapped(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    full = {f"key-{number}": number for number in range(64)}
    nearly = {f"key-{number}": number for number in range(63)}
    lab.write("a", {"data": 1, "meta": full}, {"data": 2, "meta": nearly}, {"data": 3, "meta": {}})
    first, second, third = (record["meta"] for record in lab.records("b"))
    assert set(first) == {"_topics_router", "_topics_original_meta"}
    assert first["_topics_original_meta"] == full
    assert second == nearly | {"_topics_router": second["_topics_router"]}
    assert set(third) == {"_topics_router"}


def test_the_next_router_writes_its_own_mark(lab: RouterLab) -> None:
    lab.route("ab", "a", "b", exactly_once=True)
    lab.route("bc", "b", "c", exactly_once=True)
    lab.write("a", {"data": 1, "meta": {"k": 1}})
    lab.background()
    [copy] = lab.records("c")
    assert copy["meta"]["_topics_router"]["router"] == "bc"
    assert copy["meta"]["k"] == 1
    assert lab.diff("c").rows.count(b"_topics_router") == 1


def key_of(lab: RouterLab, seq: int) -> dict[str, Any]:
    epoch = lab.topic("a").id
    return {"_topics_router": {"idempotency_key": f"router:r:{epoch}:{epoch}:{seq}"}}


def test_a_copy_that_is_already_there_is_not_repeated(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("b", {"data": "already", "meta": key_of(lab, 2)}, {"data": key_of(lab, 3)})
    lab.write("a", 1, 2, 3)
    assert lab.data("b") == ["already", key_of(lab, 3), 1, 3]
    assert lab.router("r").forwarded == 3
    assert lab.router("r").cursor == 3


def test_the_protection_ends_with_the_record(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("b", {"data": "already", "tag": "gone", "meta": key_of(lab, 1)})
    lab.restart()
    lab.delete("b", match="gone")
    lab.write("a", 1)
    assert lab.data("b") == [1]


def test_the_protection_survives_a_restart(lab: RouterLab) -> None:
    lab.route("r", "a", "b", exactly_once=True)
    lab.write("a", 1)
    lab.records("b")
    lab.write("b", {"data": "already", "meta": key_of(lab, 2)})
    lab.checkpoint(everything=True)
    lab.restart()
    lab.write("a", 2, 3)
    assert lab.data("b") == [1, "already", 3]


# --- full destinations --------------------------------------------------------------------------------


def test_a_full_destination_holds_the_router_back(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=3)
    lab.route("r", "a", "b")
    lab.write_each("a", 5)
    assert lab.data("b") == [0, 1, 2]
    assert lab.router("r").forwarded == 3
    assert lab.router("r").cursor == 3
    lab.delete("b", before=4)
    assert seqs_and_data(lab, "b") == [(4, 3), (5, 4)]
    assert lab.router("r").forwarded == 5


def test_later_records_wait_behind_one_that_is_too_large_for_now(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_bytes=100)
    lab.route("r", "a", "b")
    lab.write("a", "x" * 58, "y" * 58, "z")
    assert lab.data("b") == ["x" * 58]
    lab.delete("b", before=2)
    assert lab.data("b") == ["y" * 58, "z"]


def test_the_background_pass_goes_on_when_there_is_room(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1)
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    lab.background()
    assert lab.topic("b").head == 1
    assert lab.routers.stuck
    lab.delete("b", before=2)
    lab.background()
    assert lab.topic("b").head == 2
    assert not lab.routers.stuck


def test_time_makes_room_as_well(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1, ttl_ms=1000)
    lab.route("r", "a", "b")
    lab.write("a", 1, 2)
    assert lab.data("b") == [1]
    lab.clock.advance(1001)
    assert lab.data("b") == [2]


def test_one_blocked_router_does_not_hold_up_the_others(lab: RouterLab) -> None:
    lab.put("b", discard="reject", cap_records=1)
    lab.route("blocked", "a", "b")
    lab.route("free", "a", "c")
    lab.write_each("a", 20)
    lab.background()
    assert (lab.topic("b").head, lab.topic("c").head) == (1, 20)


def test_the_byte_quota_of_the_server_holds_for_copies(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_total_bytes=10)
    lab.route("r", "a", "b")
    lab.write("a", "aa", "bb")
    assert lab.data("b") == []
    lab.delete("a", before=2)
    assert lab.data("b") == ["bb"]
    assert lab.engine.totals.bytes <= 10


def test_an_evicting_destination_takes_everything(lab: RouterLab) -> None:
    lab.put("b", cap_records=2)
    lab.route("r", "a", "b")
    lab.write_each("a", 5)
    assert seqs_and_data(lab, "b") == [(4, 3), (5, 4)]
    assert lab.gaps("b") == [(1, 3, "cap")]
    assert lab.router("r").forwarded == 5


def test_time_at_the_destination_counts_from_the_copy(lab: RouterLab) -> None:
    lab.put("b", ttl_ms=1000)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.clock.advance(900)
    assert lab.data("b") == [1]
    lab.clock.advance(1000)
    assert lab.data("b") == [1]
    lab.clock.advance(1)
    assert lab.data("b") == []


# --- loss at the source -------------------------------------------------------------------------------


def test_records_that_aged_before_forwarding_become_a_front_hole(lab: RouterLab) -> None:
    lab.put("a", ttl_ms=1000)
    lab.route("r", "a", "b")
    lab.write_each("a", 3)
    lab.clock.advance(1001)
    lab.write("a", "fourth")
    page = lab.diff("b")
    assert gap(page) == (1, 3, "source_trim")
    assert seqs_and_data(lab, "b") == [(4, "fourth")]
    assert lab.router("r").forwarded == 4
    assert lab.lines("b") == (4, 4, 4)


def test_a_hole_with_live_records_below_it_interrupts_a_read(lab: RouterLab) -> None:
    lab.put("a", cap_records=2)
    lab.route("r", "a", "b")
    lab.write("a", "one")
    assert lab.data("b") == ["one"]
    lab.write_each("a", 4)
    first = lab.diff("b")
    assert (first.count, first.next_from_seq, first.tombstone, first.caught_up) == (1, 1, None, False)
    second = lab.diff("b", 1)
    assert gap(second) == (2, 3, "source_trim")
    assert second.caught_up
    assert seqs_and_data(lab, "b") == [(1, "one"), (4, 2), (5, 3)]
    assert lab.lines("b") == (5, 1, 1)


def test_holes_wait_behind_a_full_destination(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.put("b", discard="reject", cap_records=2)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write("a", 2)
    lab.records("b")
    lab.write_each("a", 4)
    assert lab.data("b") == [1, 2]
    assert lab.topic("b").head == 2
    lab.delete("b", before=3)
    page = lab.diff("b")
    assert gap(page) == (1, 5, "source_trim")
    assert seqs_and_data(lab, "b") == [(6, 3)]
    assert lab.router("r").forwarded == 6


def test_a_hole_waits_for_the_room_its_record_had_wanted(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.put("b", discard="reject", cap_bytes=20)
    lab.route("r", "a", "b")
    lab.write("a", "x" * 10)
    lab.records("b")
    lab.write("a", "y" * 10)
    assert lab.data("b") == ["x" * 10]
    lab.write("a", "z" * 10)
    lab.records("b")
    assert lab.topic("b").head == 1
    lab.delete("b", before=2)
    assert seqs_and_data(lab, "b") == [(3, "z" * 10)]


def test_deletes_among_the_lost_leave_no_hole(lab: RouterLab) -> None:
    lab.put("a", ttl_ms=1000)
    lab.put("b", discard="reject", cap_records=1)
    lab.route("r", "a", "b")
    lab.write("a", "first")
    lab.records("b")
    lab.write("a", {"data": 2, "tag": "x"}, 3, {"data": 4, "tag": "x"}, 5)
    lab.delete("a", match="x")
    lab.clock.advance(1001)
    lab.delete("b", before=2)
    lab.records("b")
    assert lab.topic("b").head == 3
    assert lab.router("r").forwarded == 3
    assert lab.gaps("b") == [(1, 3, "source_trim")]


def test_a_hole_in_the_source_is_passed_on(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    lab.write("a", 1)
    lab.background()
    lab.write_each("a", 3)
    lab.background()
    assert lab.gaps("b") == lab.gaps("c") == [(2, 3, "source_trim")]
    assert seqs_and_data(lab, "c") == [(1, 1), (4, 2)]


def test_a_cap_that_passes_a_hole_takes_it_to_the_front(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.put("b", cap_records=2)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write_each("a", 3)
    lab.records("b")
    lab.write("b", "x")
    lab.write("b", "y")
    assert lab.lines("b") == (6, 5, 5)
    state = lab.everything()
    lab.restart()
    assert lab.everything() == state


# --- classes ------------------------------------------------------------------------------------------


def test_copies_of_uncommitted_records_are_not_made(lab: RouterLab) -> None:
    lab.put("a", durability="fsync")
    lab.route("r", "a", "b")
    request = parse_append(json.dumps({"records": [{"data": 1}]}).encode())
    lab.engine.append("a", request, lambda op: None, lambda error: None)
    lab.engine.queue.flush()
    assert lab.data("b") == []
    lab.engine.queue.sync_now()
    assert lab.data("b") == [1]


def test_a_synced_destination_shows_copies_after_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    lab.routers.forward(lambda: False)
    assert lab.topic("b").head == 0
    lab.engine.queue.sync_now()
    assert lab.topic("b").head == 1
    assert lab.engine.counters.fsyncs == syncs + 1


def test_a_reader_of_a_synced_destination_waits_for_the_sync(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    syncs = lab.engine.counters.fsyncs
    assert lab.data("b") == [1]
    assert lab.engine.counters.fsyncs == syncs + 1


def test_a_batch_beyond_the_reservation_is_there_for_the_next_reader(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", *range(1000))
    assert len(lab.data("b")) == 1000
    assert lab.topic("b").reserved >= 1000


def test_whoever_is_called_back_by_a_commit_does_not_overtake_it(lab: RouterLab) -> None:
    """A reader woken by a write asks for copies while another write of the same commit is still to come."""
    lab.put("a", cap_records=1)
    lab.route("r", "a", "b")
    lab.write_each("a", 3)
    lab.topic("a").listeners.append(lambda: lab.routers.pull(lab.topic("b")))
    answers: list[int] = []
    for name in ("a", "b"):
        request = parse_append(b'{"records":[{"data":"together"}]}')
        lab.engine.append(name, request, lambda op: answers.append(op.head_seq), lambda error: None)
    lab.engine.queue.flush()
    assert answers == [4, 1]
    assert seqs_and_data(lab, "b") == [(1, "together"), (5, "together")]
    assert lab.topic("b").assigned == 5


def test_a_sync_under_way_is_not_waited_for_twice(lab: RouterLab) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.routers.forward(lambda: False)
    under_way = lab.engine.queue.begin_sync()
    assert lab.data("b") == [1]
    lab.engine.queue.finish_sync(under_way)
    assert lab.topic("b").head == lab.topic("b").assigned == 1
    assert lab.topic("b").pending_sync == 0


def test_a_failed_sync_shows_nothing_and_ends_forwarding(
    lab: RouterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.put("b", durability="fsync")
    lab.route("r", "a", "b")
    lab.write("a", 1)

    def refuse(ticket: SyncTicket) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(SyncTicket, "run", refuse)
    assert lab.data("b") == []
    assert lab.engine.read_only
    assert lab.topic("b").assigned == 0
    assert lab.data("a") == [1]
    assert not lab.routers.forward(lambda: False)
    monkeypatch.undo()
    lab.restart()
    assert lab.data("b") == [1]


# --- two requests at the same moment ----------------------------------------------------------------------


@pytest.mark.parametrize("crashed", [False, True])
def test_a_router_put_while_its_namesake_is_on_its_way_out_is_a_new_one(
    lab: RouterLab, crashed: bool
) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    answers: list[object] = []
    lab.routers.drop("r", answers.append, answers.append)
    assert lab.routers.find("r") is None
    lab.routers.put("r", "a", "b", Options(), lambda _, created: answers.append(created), answers.append)
    lab.engine.queue.sync_now()
    assert answers == [True, True], "deleted, then created"
    if crashed:
        lab.restart(clean=False)
    assert lab.router("r").id == 2
    lab.write("a", 2)
    assert lab.data("b") == [1, 2]
