"""Deletions by tag and by seq over sealed runs, with and without answers that were looked up ahead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.harness import Lab
from tests.support.damage import flip
from topics.core.settings import MAX_SEQ
from topics.log import delete_records, preview_delete
from topics.log.read.filter import TagMatch, parse_match
from topics.log.remove.deletion import wanted_records
from topics.log.remove.search import DeleteQuery, Question, Search, answer


@pytest.fixture(params=[1, 1 << 30], ids=["from files", "from memory"])
def lab(make_lab: Callable[..., Lab], request: pytest.FixtureRequest) -> Lab:
    """Five sealed runs of four records with the tags a, b, a, ab, and two records in memory."""
    lab = make_lab(hot_bytes=request.param)
    for at in range(5):
        lab.write("t", *({"data": 4 * at + n, "tag": tag} for n, tag in enumerate(("a", "b", "a", "ab"))))
    lab.checkpoint(everything=True)
    lab.write("t", {"data": "hot", "tag": "a"}, {"data": "hot", "tag": "b"})
    return lab


def searched(lab: Lab, match: TagMatch, limit: int = MAX_SEQ) -> Search:
    search = Search(lab.topic("t"), DeleteQuery(limit, match))
    for _ in search.look_in_memory():
        pass
    return asked(lab, search)


def asked(lab: Lab, search: Search) -> Search:
    for questions in search.questions():
        search.note(answer(lab.engine.store, questions, search.wanted))
    return search


def delete(lab: Lab, search: Search, before: int | None = None) -> int:
    topic = lab.topic("t")
    deleted: int = lab.commit(
        lambda done, fail: delete_records(
            lab.engine, topic, before, search.wanted.match, done, fail, search=search
        )
    )
    return deleted


@pytest.mark.parametrize(
    ("predicate", "before", "deleted"),
    [
        ("a", None, 11),
        ("a*", None, 16),
        ("a*", 8, 5),
        ("*", None, 22),
        ("b", 8, 2),
        ("a", 8, 4),
        ("c", None, 0),
    ],
)
@pytest.mark.parametrize("ahead", [True, False])
def test_the_same_is_deleted_however_it_is_looked_up(
    lab: Lab, predicate: str, before: int | None, deleted: int, ahead: bool
) -> None:
    match = parse_match(predicate)
    reference = [
        seq
        for seq in range(1, 23)
        if not (match.matches(("a", "b", "a", "ab")[(seq - 1) % 4] if seq <= 20 else "ab"[seq - 21]))
        or (before is not None and seq >= before)
    ]
    size = lab.topic("t").live_bytes
    if ahead:
        search = searched(lab, match, MAX_SEQ if before is None else before)
        assert delete(lab, search, before) == deleted
    else:
        assert lab.delete("t", before, predicate) == deleted
    assert lab.seqs("t") == reference
    left = lab.state("t")
    assert (left["bytes"] < size) == (deleted > 0)
    for _ in range(3):
        lab.checkpoint()
        lab.restart()
        assert lab.state("t") == left
    assert lab.delete("t", before, predicate) == 0


def test_an_answer_does_not_count_when_its_run_has_changed_since(lab: Lab) -> None:
    search = searched(lab, TagMatch("a", False))
    assert lab.delete("t", match="a") == 11
    assert delete(lab, search) == 0
    search = searched(lab, TagMatch("b", False))
    lab.delete("t", before=7)  # the floor is now inside a run that was asked
    assert delete(lab, search) == 4
    assert lab.topic("t").live_count == len(lab.seqs("t")) == 4


def test_an_answer_stands_as_long_as_its_run_is_where_it_was(lab: Lab) -> None:
    topic = lab.topic("t")
    run = topic.runs[0]
    question = Question.about(topic, run, MAX_SEQ)
    assert question.still_stands(topic)
    if run.hot is None:
        assert run.sealed is not None
        run.sealed.segment += 1
        assert not question.still_stands(topic)
        run.sealed.segment -= 1
    lab.delete("t", seqs=[1, 2, 3, 4])
    assert (run.hot, run.sealed) == (None, None)
    assert not question.still_stands(topic)


def test_runs_in_memory_that_are_complete_are_asked_too(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    for tags in (["a", "b"] * 2, [None] * 4, ["a"]):
        lab.write("u", *({"data": 0, "tag": tag} for tag in tags))
    search = Search(lab.topic("u"), DeleteQuery(MAX_SEQ, parse_match("a")))
    assert len(list(search.look_in_memory())) == 1
    assert {run.base: found.indexes.tolist() for run, found in search.standing().items()} == {1: [0, 2]}
    search = Search(lab.topic("u"), DeleteQuery(MAX_SEQ, parse_match("z")))
    list(search.look_in_memory())
    assert [(len(found.indexes), found.size) for found in search.standing().values()] == [(0, 0)]


def test_a_damaged_file_is_announced_by_the_deletion_not_by_the_survey(lab: Lab) -> None:
    if lab.topic("t").runs[0].hot is not None:
        lab.checkpoint()
        lab.restart()  # after which only the files have it
    first = lab.segment_files()[0]
    flip(first, first.stat().st_size - 20)  # inside the trailer
    search = searched(lab, TagMatch("b", False))
    assert lab.topic("t").live_count == 22
    lab.engine.store.close()
    assert delete(lab, search) == 5
    assert lab.gaps("t") == [(1, 4, "cap")]


@pytest.mark.parametrize("predicate", [None, "a", "a*", "c"])
@pytest.mark.parametrize("before", [None, 15])
@pytest.mark.parametrize("ahead", [True, False])
def test_seqs_are_found_however_they_are_looked_up(
    lab: Lab, predicate: str | None, before: int | None, ahead: bool
) -> None:
    named = [1, 2, 3, 4, 7, 12, 14, 17, 21, 22, 23, 400]
    match = None if predicate is None else parse_match(predicate)
    lab.delete("t", seqs=[3, 13])
    tags = [*("a", "b", "a", "ab") * 5, "a", "b"]
    gone = [
        seq
        for seq in named
        if seq <= 22
        and seq != 3
        and (before is None or seq < before)
        and (match is None or match.matches(tags[seq - 1]))
    ]
    topic, search = lab.topic("t"), None
    if ahead:
        search = asked(lab, Search(topic, wanted_records(before, match, named)))
    outcome = preview_delete(lab.engine, topic, before, match, named, search=search)
    deleted = lab.commit(
        lambda done, fail: delete_records(
            lab.engine, topic, before, match, done, fail, seqs=named, search=search
        )
    )
    assert deleted == outcome.deleted == len(gone)
    assert (outcome.count, outcome.bytes, outcome.earliest_seq) == (
        topic.live_count,
        topic.live_bytes,
        topic.floor,
    )
    left = lab.state("t")
    assert left["seqs"] == [seq for seq in range(1, 23) if seq not in (3, 13, *gone)]
    for _ in range(3):
        lab.checkpoint()
        lab.restart()
        assert lab.state("t") == left
