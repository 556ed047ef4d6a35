"""A commit that comes again: with its parts, with others that hold the same rows, or without some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.stages.lab import LargeLab, StageLab
from topics.core.errors import ApiError
from topics.flow.stages.identities import REMEMBERED_REQUESTS


@pytest.fixture(params=[StageLab, LargeLab], ids=["frame", "segments"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> StageLab:
    """What is said here holds for a commit of any size."""
    kind: type[StageLab] = request.param
    return kind(tmp_path)


def put_two(lab: StageLab, stage: str = "s", **data: str) -> None:
    for part, value in ({"zero": "0", "one": "1"} | data).items():
        lab.part(part, {"data": [value]}, topic="a", stage=stage)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("left", ["zero", "one"])
def test_what_is_left_of_the_parts_of_a_repeat_is_compared(lab: StageLab, left: str, restart: bool) -> None:
    """A crash may come between a commit and the removal of its parts."""
    put_two(lab)
    first, _ = lab.commit_stage("one", "zero")
    if restart:
        lab.restart(clean=False)
    for data in ("77", '"0"'):
        lab.part(left, {"data": [data]}, topic="a")
        with pytest.raises(ApiError, match="other rows") as refusal:
            lab.commit_stage("one", "zero")
        assert refusal.value.code == "stage_conflict"
    lab.part(left, {"data": ["0" if left == "zero" else "1"]}, topic="a")
    for _ in range(2):
        assert lab.commit_stage("zero", "one") == (first, True)
        assert lab.spooled() == []
    assert lab.data("a") == [1, 0]


@pytest.mark.parametrize(
    ("parts", "other"),
    [
        (("zero",), {}),
        (("zero", "one", "two"), {}),
        (("zero", "two"), {}),
        (("zero", "one"), {"stage": "t"}),
        (("zero", "one"), {"topic": "b"}),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_a_repeat_without_its_parts_has_to_name_those_of_the_commit(
    lab: StageLab, parts: tuple[str, ...], other: dict[str, str], restart: bool
) -> None:
    put_two(lab)
    first, _ = lab.commit_stage("zero", "one")
    if restart:
        lab.restart(clean=False)
    with pytest.raises(ApiError, match="other parts") as refusal:
        lab.commit_stage(*parts, stage=other.get("stage", "s"), topic=other.get("topic"))
    assert refusal.value.code == "stage_conflict"
    assert lab.commit_stage("zero", "one") == (first, True)


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeat_in_other_parts_may_lose_its_answer_too(lab: StageLab, restart: bool) -> None:
    """A driver that died is followed by another, which stages the rows under names of its own."""
    put_two(lab)
    first, _ = lab.commit_stage("zero", "one")
    stages = [str(number) for number in range(REMEMBERED_REQUESTS)]
    for stage in stages:
        assert lab.commit_stage("zero", "one") == (first, True)
        put_two(lab, stage, zero="1", one="0")
        for _ in range(2):
            assert lab.commit_stage("zero", "one", stage=stage) == (first, True)
            assert lab.spooled() == []
            if restart:
                lab.restart(clean=False)
        # Stopped while its parts were removed.
        lab.part("one", {"data": ["0"]}, topic="a", stage=stage)
        assert lab.commit_stage("zero", "one", stage=stage) == (first, True)
        lab.part("one", {"data": ["1"]}, topic="a", stage=stage)
        with pytest.raises(ApiError, match="other rows"):
            lab.commit_stage("zero", "one", stage=stage)
        lab.drop_stage(stage)
    for stage in stages:
        assert lab.commit_stage("zero", "one", stage=stage) == (first, True)
    # So many are remembered. Whoever comes after all of these has to bring its rows.
    with pytest.raises(ApiError, match="other parts"):
        lab.commit_stage("zero", "one")
    assert lab.data("a") == [0, 1]


def test_what_is_left_is_compared_with_the_latest_repeat_alone(lab: StageLab) -> None:
    put_two(lab)
    first, _ = lab.commit_stage("zero", "one")
    put_two(lab, "t")
    lab.commit_stage("zero", "one", stage="t")
    lab.part("zero", {"data": ["0"]}, topic="a")
    with pytest.raises(ApiError, match="other rows"):
        lab.commit_stage("zero", "one")
    put_two(lab)
    assert lab.commit_stage("zero", "one") == (first, True)
    lab.part("zero", {"data": ["0"]}, topic="a")
    for stage in "st":
        assert lab.commit_stage("zero", "one", stage=stage) == (first, True)


def test_the_parts_of_a_repeat_that_cannot_be_noted_stay(
    lab: StageLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk does not make it another one, and without its parts it would be refused later."""
    put_two(lab)
    first, _ = lab.commit_stage("zero", "one")
    put_two(lab, "t")
    with monkeypatch.context() as patch:

        def full(room: int) -> None:
            raise ApiError("disk_full", "no room")

        patch.setattr(lab.engine.queue, "require_growth", full)
        assert lab.commit_stage("zero", "one", stage="t") == (first, True)
        assert len(lab.spooled()) == 2
        # Nothing has to be written for those whose names are known.
        assert lab.commit_stage("zero", "one") == (first, True)
    assert lab.commit_stage("zero", "one", stage="t") == (first, True)
    assert lab.spooled() == []
