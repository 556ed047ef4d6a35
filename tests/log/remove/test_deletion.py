"""What a delete takes, and what it spares."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab, gap
from topics.log.remove.tags import parse_match
from topics.values.errors import ApiError


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
