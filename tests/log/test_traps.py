"""Situations in which a plausible engine gives the wrong answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.harness import T0, Lab, gap, records, seqs
from topics.log.remove.tags import parse_match
from topics.values.errors import ApiError


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_dead_slots_are_not_evictions(lab: Lab) -> None:
    lab.put("t", cap_records=3)
    lab.write_each("t", 3, tag="old")
    lab.delete("t", before=2, match="old")
    lab.write_each("t", 1)
    page = lab.diff("t")
    assert seqs(page) == [2, 3, 4]
    assert page.tombstone is None


def test_a_gap_ends_at_the_floor_not_at_the_loss_line(lab: Lab) -> None:
    lab.put("t", cap_records=6)
    lab.write_each("t", 9)
    lab.delete("t", before=7)
    page = lab.diff("t")
    assert gap(page) == (1, 6, "cap")
    assert page.tombstone is not None
    assert page.tombstone.earliest_seq == 7
    page = lab.diff("t", 3)
    assert page.tombstone is None
    assert seqs(page) == [7, 8, 9]


@pytest.mark.parametrize("fate", ["expired", "deleted"])
def test_an_empty_topic_is_caught_up_and_only_age_is_announced(lab: Lab, fate: str) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 7)
    if fate == "expired":
        lab.clock.advance(101)
    else:
        lab.delete("t", before=1000)
    page = lab.diff("t")
    assert page.rows == b""
    assert (page.next_from_seq, page.caught_up, page.lag, page.earliest_seq) == (7, True, 0, 8)
    if fate == "expired":
        assert gap(page) == (1, 7, "ttl")
    else:
        assert page.tombstone is None


def test_exactly_the_ttl_is_still_alive(lab: Lab) -> None:
    lab.put("t", ttl_ms=250)
    lab.write_each("t", 1)
    lab.clock.advance(250)
    assert seqs(lab.diff("t")) == [1]
    lab.clock.advance(1)
    assert seqs(lab.diff("t")) == []


def test_an_idle_topic_shows_its_age(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 4)
    lab.clock.advance(101)
    assert lab.lines("t") == (4, 5, 5)
    assert (lab.topic("t").live_count, lab.topic("t").live_bytes) == (0, 0)
    assert lab.engine.totals.bytes == 0


def test_a_tail_cursor_is_not_a_recreated_topic(lab: Lab) -> None:
    lab.write_each("t", 40)
    lab.drop("t")
    lab.write_each("t", 12)
    page = lab.diff("t", 12)
    assert (page.rows, page.caught_up, page.tombstone) == (b"", True, None)
    page = lab.diff("t", 40)
    assert gap(page) == (1, 0, "recreated")
    assert seqs(page) == list(range(1, 13))


def test_a_cursor_above_an_empty_topic(lab: Lab) -> None:
    lab.put("t")
    page = lab.diff("t", 9)
    assert gap(page) == (1, 0, "recreated")
    assert page.tombstone is not None
    assert page.tombstone.missed_estimate == 0
    assert (page.next_from_seq, page.caught_up) == (0, True)


def test_a_cursor_of_another_epoch(lab: Lab) -> None:
    lab.write_each("t", 3)
    first = lab.topic("t").id
    lab.drop("t")
    lab.write_each("t", 5)
    second = lab.topic("t").id
    assert second > first
    assert lab.diff("t", 2, epoch=second).tombstone is None
    page = lab.diff("t", 2, epoch=first)
    assert gap(page) == (1, 0, "recreated")
    assert seqs(page) == [1, 2, 3, 4, 5]


def test_epochs_rise_across_restarts_and_deletions(lab: Lab) -> None:
    epochs = []
    for everything in (False, True, True):
        lab.write_each("t", 1)
        epochs.append(lab.topic("t").id)
        lab.drop("t")
        lab.checkpoint(everything=everything)
        lab.restart()
    assert epochs == sorted(set(epochs))


def test_own_records_are_crossed_in_one_call(lab: Lab) -> None:
    for _ in range(12):
        lab.write("t", *range(100), node="quay-1")
    lab.checkpoint(everything=True)
    page = lab.diff("t", limit=5, nodes=frozenset(["quay-1"]))
    assert (page.rows, page.next_from_seq, page.caught_up) == (b"", 1200, True)


def test_the_walk_stops_with_the_last_allowed_record(lab: Lab) -> None:
    for node in ("far", "far", "own"):
        lab.write("t", 0, node=node)
    page = lab.diff("t", limit=2, nodes=frozenset(["own"]))
    assert seqs(page) == [1, 2]
    assert (page.next_from_seq, page.caught_up, page.lag) == (2, False, 1)
    page = lab.diff("t", 2, limit=2, nodes=frozenset(["own"]))
    assert (page.rows, page.next_from_seq, page.caught_up) == (b"", 3, True)


def test_the_budget_does_not_examine_what_it_refuses(lab: Lab) -> None:
    lab.write("t", "aaaa", {"data": "own", "node": "own"}, "bbbbbbbb", "c")
    page = lab.diff("t", max_bytes=10, nodes=frozenset(["own"]))
    assert seqs(page) == [1]
    assert (page.next_from_seq, page.caught_up) == (2, False)
    page = lab.diff("t", 2, max_bytes=1)
    assert seqs(page) == [3], "one over-sized record is delivered alone"


def test_a_put_replaces_every_setting(lab: Lab) -> None:
    lab.put("t", ttl_ms=5, cap_records=7, discard="reject")
    lab.put("t")
    config = lab.topic("t").config
    assert (config.ttl_ms, config.cap_records, config.discard) == (0, 0, "old")
    lab.put("q", type="queue")
    with pytest.raises(ApiError) as caught:
        lab.put("q")
    assert caught.value.code == "topic_exists_incompatible"


def test_a_keyed_retry_comes_before_the_cap(lab: Lab) -> None:
    lab.put("t", cap_records=2, discard="reject")
    first = lab.write("t", 1, 2, key="k")
    again = lab.write("t", 1, 2, key="k")
    assert (again.first_seq, again.last_seq, again.deduped) == (first.first_seq, first.last_seq, True)
    with pytest.raises(ApiError, match="full"):
        lab.write("t", 3)
    lab.clock.advance(120_001)
    with pytest.raises(ApiError, match="full"):
        lab.write("t", 1, 2, key="k")


def test_what_can_never_fit_is_not_called_full(lab: Lab) -> None:
    lab.put("t", cap_records=2, discard="reject")
    with pytest.raises(ApiError) as caught:
        lab.write("t", 1, 2, 3)
    assert caught.value.code == "record_too_large"
    lab.write("t", 1, 2)
    with pytest.raises(ApiError) as caught:
        lab.write("t", 3)
    assert caught.value.code == "topic_full"
    assert lab.lines("t") == (2, 1, 1)


def test_only_the_last_star_is_a_wildcard() -> None:
    match = parse_match(["tag", "Glob", "a*b*"])
    assert (match.value, match.is_prefix) == ("a*b", True)
    assert parse_match("ab*").is_prefix
    assert not parse_match("ab").is_prefix
    with pytest.raises(ApiError):
        parse_match(["tag", "Glob", "ab"])


def test_a_star_inside_a_glob_stands_for_itself(lab: Lab) -> None:
    for tag in ("a*b", "a*bc", "axb", "ab"):
        lab.write("t", {"data": 0, "tag": tag})
    assert lab.delete("t", match=["tag", "Glob", "a*b*"]) == 2
    assert lab.seqs("t") == [3, 4]


def test_both_selectors_together(lab: Lab) -> None:
    for tag in ("keep", "go", "go", "go"):
        lab.write("t", {"data": 0, "tag": tag})
    assert lab.delete("t", before=3, match="go") == 1
    assert lab.lines("t") == (4, 1, 1)
    assert lab.seqs("t") == [1, 3, 4]
    assert lab.topic("t").delete_below == 0, "only a pure prefix moves the marker"


def test_a_delete_beyond_the_head_spares_what_comes_later(lab: Lab) -> None:
    lab.write_each("t", 5)
    assert lab.delete("t", before=1000) == 5
    lab.write_each("t", 1)
    assert lab.seqs("t") == [6]
    lab.restart()
    assert lab.seqs("t") == [6]


@pytest.mark.parametrize("before", [0, 1])
def test_a_delete_below_the_first_seq_removes_nothing(lab: Lab, before: int) -> None:
    lab.write_each("t", 2)
    assert lab.delete("t", before=before) == 0
    assert lab.seqs("t") == [1, 2]


def test_deleting_twice_deletes_nothing(lab: Lab) -> None:
    lab.write_each("t", 6, tag="x")
    assert lab.delete("t", match="x") == 6
    assert lab.delete("t", match="x") == 0


# --- what the model found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [True, False])
def test_a_longer_ttl_brings_nothing_back(lab: Lab, look: bool) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    if look:
        assert lab.seqs("t") == []
    lab.put("t")
    for _ in range(2):
        assert lab.seqs("t") == []
        assert gap(lab.diff("t")) == (1, 3, "ttl")
        lab.restart()


def test_a_clock_set_back_brings_nothing_back(lab: Lab) -> None:
    lab.put("t", ttl_ms=100)
    lab.write_each("t", 3)
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl")
    lab.clock.set(T0)
    lab.delete("t", before=4)
    lab.put("t")
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


def test_age_that_passes_while_a_delete_waits_for_the_disk(lab: Lab) -> None:
    lab.put("t", ttl_ms=100, durability="fsync")
    lab.write_each("t", 3)
    deleted: list[int] = []
    lab.engine.delete_records(lab.topic("t"), 4, None, deleted.append, deleted.append)  # type: ignore[arg-type]
    lab.clock.advance(101)
    assert gap(lab.diff("t")) == (1, 3, "ttl"), "the delete is not committed yet"
    lab.engine.queue.sync_now()
    assert deleted == [0]
    lab.restart()
    assert gap(lab.diff("t")) == (1, 3, "ttl")


def test_evictions_that_ephemeral_records_caused_stay_evicted(lab: Lab) -> None:
    lab.put("t", cap_records=4)
    lab.write_each("t", 3)
    lab.put("t", cap_records=4, durability="ephemeral")
    lab.write_each("t", 3)
    assert lab.seqs("t") == [3, 4, 5, 6]
    lab.restart()
    assert lab.seqs("t") == [3]
    assert lab.gaps("t") == [(1, 2, "cap"), (4, 6, "cap")]


def test_tags_of_ephemeral_records_outlive_the_sealing_of_later_ones(lab: Lab) -> None:
    lab.put("t", durability="ephemeral")
    lab.write_each("t", 2, tag="x")
    lab.put("t")
    lab.write_each("t", 4, tag="x")
    lab.checkpoint(everything=True)
    assert lab.delete("t", match="x") == 6


def test_a_run_emptied_in_the_middle_frees_its_journal(lab: Lab) -> None:
    lab.write_each("t", 1)
    lab.checkpoint(everything=True)
    lab.write_each("t", 4, tag="x")
    lab.delete("t", match="x")
    for _ in range(3):
        lab.write_each("t", 1)
        lab.checkpoint(everything=True)
        lab.restart()
    assert lab.seqs("t") == [1, 6, 7, 8]
    assert len(lab.journal_files()) <= 3


@pytest.mark.parametrize("before", [3, 4, 6])
def test_a_prefix_that_ends_inside_an_emptied_run(lab: Lab, before: int) -> None:
    lab.write_each("t", 2)
    lab.write_each("t", 4, tag="x")
    lab.write_each("t", 2)
    lab.checkpoint(everything=True)
    lab.delete("t", match="x")
    lab.delete("t", before=before)
    assert lab.seqs("t") == [7, 8]
    lab.restart()
    assert lab.seqs("t") == [7, 8]


def test_a_match_reads_tags_in_byte_order(lab: Lab) -> None:
    tags = ["é", "z", "\U0001f600", "￿", "a"]
    for tag in tags:
        lab.write("t", {"data": 0, "tag": tag})
    lab.checkpoint(everything=True)
    for tag in tags:
        assert lab.delete("t", match=tag + "*") == 1


def test_rows_come_back_as_they_were_written(lab: Lab) -> None:
    lab.write("t", {"data": '","meta":{"x":1}}', "meta": {"data": "}"}, "tag": "t", "node": "n"})
    for _ in range(2):
        (record,) = records(lab.diff("t"))
        assert record == {
            "$seq": 1,
            "$ts": T0,
            "$node": "n",
            "data": '","meta":{"x":1}}',
            "meta": {"data": "}"},
        }
        lab.checkpoint(everything=True)
