"""The index of tags in memory: lookups over several generations, and what is forgotten when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ApiError
from topics.log.remove import tags
from topics.log.remove.tags import TagIndex, TagMatch, parse_match

pytestmark = pytest.mark.usefixtures("both_codecs")


@pytest.fixture(autouse=True)
def small_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "GENERATION_RECORDS", 4)


def filled() -> TagIndex:
    """Three runs of four records, a generation each: a b a -, a b a -, …"""
    index = TagIndex()
    for base in (1, 5, 9):
        index.extend(base, ["a", "b", "a", None], base)
    return index


def found(index: TagIndex, tag: str) -> list[int]:
    seqs = [int(seq) for seq in index.matching(TagMatch(tag, False))]
    assert len(seqs) == index.count(TagMatch(tag, False))
    return seqs


def starting_with(index: TagIndex, prefix: str) -> list[str]:
    """Every tag that starts with `prefix`, ascending."""
    return sorted({tag for generation in index._generations for tag in generation.prefix(prefix)})


def test_a_lookup_finds_every_generation() -> None:
    index = filled()
    assert found(index, "a") == [1, 3, 5, 7, 9, 11]
    assert found(index, "b") == [2, 6, 10]
    assert found(index, "c") == []


def test_a_prefix_is_found_once_however_many_generations_know_it() -> None:
    index = filled()
    index.extend(13, ["ab", "b", "aa"], 13)
    assert starting_with(index, "a") == ["a", "aa", "ab"]
    assert starting_with(index, "") == ["a", "aa", "ab", "b"]
    assert starting_with(index, "z") == []


def test_a_generation_goes_with_the_last_of_its_runs() -> None:
    index = filled()
    index.forget_run(5)
    assert found(index, "a") == [1, 3, 9, 11]
    index.forget_run(1)
    index.forget_run(9)
    assert found(index, "a") == []
    assert starting_with(index, "") == []
    index.extend(13, ["a"], 13)
    assert found(index, "a") == [13]


def test_a_generation_stays_while_one_of_its_runs_is_in_memory() -> None:
    index = TagIndex()
    index.extend(1, ["a"], 1)
    index.extend(2, ["a"], 2)
    index.forget_run(1)
    assert 2 in found(index, "a")
    index.forget_run(2)
    assert found(index, "a") == []


def test_a_deleted_tag_is_forgotten_below_the_bound_only() -> None:
    index = filled()
    index.forget(parse_match("a"), 6)
    assert found(index, "a") == [7, 9, 11]
    index.forget(parse_match("a*"), 100)
    assert (found(index, "a"), starting_with(index, "")) == ([], ["b"])
    index.extend(9, ["a"], 13)
    assert (found(index, "a"), starting_with(index, "")) == ([13], ["a", "b"])


def test_the_bound_itself_is_not_forgotten() -> None:
    index = TagIndex()
    index.extend(1, ["a", "b", "a"], 1)
    index.forget(parse_match("a"), 3)
    assert found(index, "a") == [3]
    index.forget(parse_match("*"), 3)
    assert (found(index, "a"), found(index, "b")) == ([3], [])
    index.extend(1, ["b"], 4)
    index.forget(parse_match("b"), 4)
    assert found(index, "b") == [4]


def test_what_is_asked_from_a_seq_on_includes_it() -> None:
    index = filled()
    assert index.matching(parse_match("*"), 12).tolist() == [9, 10, 11]
    assert index.matching(parse_match("*"), 13).tolist() == []


def test_a_tag_that_comes_back_is_found_once() -> None:
    index = TagIndex()
    index.extend(1, ["a", "b"], 1)
    assert starting_with(index, "") == ["a", "b"]
    index.forget(parse_match("a"), 100)
    assert (starting_with(index, ""), index.count(parse_match("*"))) == (["b"], 1)
    index.extend(1, ["a"], 3)
    assert (starting_with(index, ""), index.count(parse_match("*"))) == (["a", "b"], 2)
    assert index.matching(parse_match("*")).tolist() == [2, 3]


names = st.text(st.sampled_from("ab\U0010ffff"), max_size=4)
wholesale = st.just([f"b{number * 7919 % 10_007:05d}" for number in range(300)])
moves = st.one_of(
    st.tuples(st.just("write"), st.lists(st.none() | names, min_size=1, max_size=4) | wholesale),
    st.tuples(st.just("ask"), names),
    st.tuples(st.sampled_from(["delete", "delete all"]), names),
)


@given(st.lists(moves, max_size=20))
def test_an_index_finds_what_a_list_of_all_tags_would(made: list[tuple[str, Any]]) -> None:
    index = TagIndex()
    carried: list[str | None] = []
    for move, value in [*made, ("ask", "")]:
        match = TagMatch(value, move != "delete") if move != "write" else None
        if match is None:
            index.extend(1, value, len(carried) + 1)
            carried += value
            continue
        if move != "ask":
            index.forget(match, len(carried) + 1)
            carried = [None if match.matches(tag) else tag for tag in carried]
        seqs = [seq for seq, tag in enumerate(carried, 1) if match.matches(tag)]
        assert index.matching(match).tolist() == seqs
        assert index.count(match) == len(seqs)
        assert starting_with(index, value) == sorted(set(filter(TagMatch(value, True).matches, carried)))


def test_sorting_ahead_changes_nothing_but_when_it_is_done() -> None:
    index = filled()
    assert index.unsorted == 3
    assert len(list(index.sort_in_steps())) == 3
    assert index.unsorted == 0
    assert starting_with(index, "") == ["a", "b"]
    assert sorted(index.matching(parse_match("*"))) == [1, 2, 3, 5, 6, 7, 9, 10, 11]


def test_what_failed_to_commit_is_forgotten() -> None:
    index = filled()
    index.forget_above(6)
    assert found(index, "a") == [1, 3, 5]
    assert found(index, "b") == [2, 6]


def test_what_is_forgotten_may_be_forgotten_again_and_come_back() -> None:
    """Of writes that failed, the last is taken back first."""
    index = TagIndex()
    index.extend(1, ["a", "b", "b"], 1)
    for above in (1, 1, 0):
        index.forget_above(above)
        assert (found(index, "a"), found(index, "b")) == ([1] * above, [])
    index.extend(1, ["b"], 1)
    assert found(index, "b") == [1]


def test_tags_may_come_in_any_sequence() -> None:
    index = TagIndex()
    index.extend(1, ("a", None, "a"), 1)
    assert found(index, "a") == [1, 3]


def test_seqs_far_apart_do_not_share_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "_MAX_SPAN", 100)
    index = TagIndex()
    index.extend(1, ["a"], 1)
    index.extend(1000, ["a"], 1000)
    index.extend(500, ["a"], 500)
    assert sorted(found(index, "a")) == [1, 500, 1000]


@pytest.mark.parametrize("last", ["a", "\ud7ff", "\U0010ffff", "\U0010ffff\U0010ffff"])
def test_a_prefix_may_end_with_any_character(last: str) -> None:
    index = TagIndex()
    tags = ["x", f"x{last}", f"x{last}\0", f"x{last}\U0010ffff", f"x{last[:-1]}", "xz", "y", last, f"{last}y"]
    index.extend(1, tags, 1)
    for prefix in (f"x{last}", last):
        assert starting_with(index, prefix) == sorted({tag for tag in tags if tag.startswith(prefix)})


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("a", TagMatch("a", False)),
        ("a*", TagMatch("a", True)),
        ("*", TagMatch("", True)),
        (["tag", "Eq", "a*"], TagMatch("a*", False)),
        (["tag", "Glob", "a*"], TagMatch("a", True)),
    ],
)
def test_what_a_match_may_look_like(value: object, match: TagMatch) -> None:
    for found in (parse_match(value), parse_match(match.to_json())):
        assert (found.value, found.is_prefix) == (match.value, match.is_prefix)
    assert not match.matches(None)


@pytest.mark.parametrize(
    "value",
    [
        7,
        None,
        [],
        ["tag", "Eq"],
        ["tag", "Eq", 7],
        ["node", "Eq", "a"],
        ["tag", "Is", "a"],
        ["tag", "Glob", "a"],
    ],
)
def test_what_is_no_match(value: object) -> None:
    with pytest.raises(ApiError):
        parse_match(value)


def test_counting_stops_when_there_are_enough() -> None:
    index = filled()
    for enough in range(1, 12):
        assert min(enough, 9) <= index.count(parse_match("*"), enough) <= min(enough + 1, 9)


def test_tags_are_forgotten_some_at_a_time() -> None:
    index = filled()
    steps = index.forget_in_steps(parse_match("*"), 100)
    seen = [len(index.matching(parse_match("*")))]
    seen += [len(index.matching(parse_match("*"))) for _ in steps]
    assert (seen[0], seen[-1]) == (9, 0)
    assert seen == sorted(seen, reverse=True)
