"""What is remembered of commits: how much, for whom, and over restarts."""

from __future__ import annotations

import msgspec
import pytest

from tests.flow.stages.lab import StageLab
from topics.core.errors import ApiError
from topics.flow.stages import identities as module
from topics.flow.stages.identities import (
    KEPT_PART_DIGESTS,
    MAX_APPLICATIONS,
    REMEMBERED_BATCHES,
    Commit,
    Identities,
    OwnedCommit,
    StageRange,
    pack_digests,
)

# --- whose they are ---------------------------------------------------------------------------------------


def test_owners_that_choose_the_same_names_do_not_meet(lab: StageLab) -> None:
    for owner in ("", "a.", "a.|b.", "b."):
        lab.part("0", {"data": [f'"{owner}"']}, topic="b.t" if owner == "b." else "a.t", owner=owner)
    for owner, seq in (("a.", 1), ("", 2), ("a.|b.", 3)):
        assert lab.commit_stage("0", owner=owner) == ({"a.t": (seq, seq, 1)}, False)
    assert lab.commit_stage("0", owner="b.") == ({"b.t": (1, 1, 1)}, False)
    assert lab.data("a.t") == ["a.", "", "a.|b."]
    lab.restart()
    assert lab.commit_stage("0", owner="a.") == ({"a.t": (1, 1, 1)}, True)
    lab.part("0", {"data": ["9"]}, topic="b.t", owner="b.")
    with pytest.raises(ApiError, match="other rows"):
        lab.commit_stage("0", owner="b.")


# --- how much ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_the_last_hundred_batches_are_compared_and_older_ones_refused(lab: StageLab, restart: bool) -> None:
    lab.commit_nothing(range(REMEMBERED_BATCHES + 3))
    if restart:
        lab.checkpoint()
        lab.restart()
    for batch in range(3):
        with pytest.raises(ApiError, match="older") as refusal:
            lab.commit_stage(batch=batch)
        assert refusal.value.code == "stage_conflict"
    lab.part("0", {"data": ["1"]}, topic="a")
    for batch in (3, REMEMBERED_BATCHES + 2):
        assert lab.commit_stage(batch=batch) == ({}, True)
        with pytest.raises(ApiError, match="other rows"):
            lab.commit_stage("0", batch=batch)


def few(monkeypatch: pytest.MonkeyPatch, applications: int) -> None:
    monkeypatch.setattr(module, "MAX_APPLICATIONS", applications)


@pytest.mark.parametrize("restart", [False, True])
def test_the_application_unused_longest_is_forgotten_first(
    lab: StageLab, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    assert MAX_APPLICATIONS == 10_000
    few(monkeypatch, 3)
    for name in "pqr":
        lab.commit_stage(identity=name)
    # A repeat is a use, too; and a restart must not bring back the one that went instead.
    assert lab.commit_stage(identity="p") == ({}, True)
    lab.commit_stage(identity="s")
    if restart:
        lab.restart(clean=False)
    assert lab.stages.identities.applications == 3
    for name in "prs":
        assert lab.commit_stage(identity=name) == ({}, True), name
    assert lab.commit_stage(identity="q") == ({}, False)
    assert lab.stages.identities.forgotten == (1 if restart else 2)


def commit(batch: int = 0, topics: int = 0) -> Commit:
    return Commit(batch, topics, 7, [StageRange(f"t{n}", 1, 1, 1, 1) for n in range(topics)], [1], b"")


def settled(identities: Identities, name: str, made: Commit) -> OwnedCommit:
    prepared = identities.prepare("", name, made, lambda _: False)
    identities.settle(prepared)
    return prepared


def test_answers_with_many_topics_are_forgotten_when_they_take_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED_BYTES", 10_000)
    identities = Identities()
    assert settled(identities, "small", commit()).forgotten == []
    assert settled(identities, "large", commit(topics=500)).forgotten == []
    # It takes the place of a batch of its own, so nothing else has to go.
    assert settled(identities, "small", commit()).forgotten == []
    assert settled(identities, "second", commit(topics=500)).forgotten == ["large"]
    assert identities.find("", "small", 0)[0] == commit()
    assert identities.find("", "large", 0) == (None, None)


def test_commits_under_way_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, 2)
    identities = Identities()
    for name in "pq":
        settled(identities, name, commit())
    first = identities.prepare("", "r", commit(), lambda _: False)
    second = identities.prepare("", "s", commit(), lambda _: False)
    # The one that has to go comes back before it has gone: it needs a place again.
    third = identities.prepare("", "p", commit(1), lambda _: False)
    assert (first.forgotten, second.forgotten, third.forgotten) == (["p"], ["q"], [])
    identities.withdraw(second)
    fourth = identities.prepare("", "t", commit(), lambda _: False)
    assert fourth.forgotten == ["q"]
    for each in (first, third, fourth):
        identities.settle(each)
    # No more than could not be helped: the others were all busy.
    assert identities.applications == 3
    assert settled(identities, "u", commit()).forgotten == ["r", "p"]
    assert identities.applications == 2


# --- what is known of their parts -------------------------------------------------------------------------


def named(batch: int, parts: int) -> Commit:
    return Commit(batch, parts, 7, [], [batch], pack_digests(range(parts)))


@pytest.mark.parametrize("again", [False, True], ids=["as they came", "loaded"])
def test_of_many_parts_only_those_of_the_batch_committed_last_can_be_told(again: bool) -> None:
    identities = Identities()
    for batch, parts in ((1, KEPT_PART_DIGESTS), (2, KEPT_PART_DIGESTS + 1), (4, 5000), (3, 4000)):
        settled(identities, "p", named(batch, parts))
    if again:
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(identities.dump()))
        identities = Identities()
        identities.load(state)
    settled(identities, "q", commit())
    known = {batch: identities.find("", "p", batch)[0] for batch in (1, 2, 3, 4)}
    assert (known[1], known[3]) == (named(1, KEPT_PART_DIGESTS), named(3, 4000))
    assert known[2] == Commit(2, KEPT_PART_DIGESTS + 1, 7, [], [2], b"")
    assert known[4] == Commit(4, 5000, 7, [], [4], b"")
    # A commit of nothing is another one, too.
    settled(identities, "p", commit(5))
    assert identities.find("", "p", 3)[0] == Commit(3, 4000, 7, [], [3], b"")
    encoded = [*identities._owners[""].applications["p"].batches.values()]
    assert identities._owners[""].applications["p"].size == 512 + sum(128 + len(each) for each in encoded)


def test_parts_that_cannot_be_told_any_more_are_refused_unless_all_are_there(lab: StageLab) -> None:
    parts = [str(number) for number in range(KEPT_PART_DIGESTS + 1)]

    def put(*some: str) -> None:
        for part in some:
            lab.part(part, {"data": [part]}, topic="a")

    put(*parts)
    lab.commit_stage(*parts, batch=1)
    put("0")
    assert lab.commit_stage(*parts, batch=1)[1]
    lab.commit_stage(batch=2)
    assert lab.commit_stage(*parts, batch=1)[1]
    put("0")
    with pytest.raises(ApiError, match="in the parts that are there"):
        lab.commit_stage(*parts, batch=1)
    put(*parts)
    assert lab.commit_stage(*parts, batch=1)[1]
