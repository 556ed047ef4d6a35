"""What pipelines say of themselves survives restarts, is bounded, and is forgotten in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import T0, Lab
from topics.core.errors import ApiError, WritesOff
from topics.flow import pipelines as pipelines_module
from topics.flow.pipelines import UNHEARD_MS, Pipelines, Report


class PipelineLab(Lab):
    pipelines: Pipelines

    def layer(self) -> None:
        self.pipelines = Pipelines(self.engine)
        self.engine.register(self.pipelines)

    def tell(self, name: str, state: str = "running", why: str = "", kind: str = "archive") -> Any:
        return self.commit(
            lambda done, fail: self.pipelines.tell(
                name, kind, state, why, lambda report, created: done((report, created)), fail
            )
        )

    def forget(self, name: str) -> Any:
        return self.commit(lambda done, fail: self.pipelines.forget(name, done, fail))


@pytest.fixture
def lab(tmp_path: Path) -> PipelineLab:
    return PipelineLab(tmp_path)


def test_a_report_says_since_when(lab: PipelineLab) -> None:
    assert lab.tell("lake") == (Report("lake", "archive", "running", "", T0, T0), True)
    lab.clock.advance(5)
    assert lab.tell("lake") == (Report("lake", "archive", "running", "", T0, T0 + 5), False)
    lab.clock.advance(5)
    lab.tell("lake", "failed", "no space")
    lab.tell("a")
    assert [report.name for report in lab.pipelines.all()] == ["a", "lake"]
    assert lab.pipelines.failed() == [Report("lake", "archive", "failed", "no space", T0 + 10, T0 + 10)]


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_reports_survive_restarts(lab: PipelineLab, checkpoints: int, clean: bool) -> None:
    lab.tell("lake", "failed", "no space")
    lab.tell("gone")
    assert lab.forget("gone") is True
    assert lab.forget("gone") is False
    for _ in range(checkpoints):
        lab.checkpoint()
    lab.clock.advance(7)
    lab.restart(clean=clean)
    assert lab.pipelines.all() == [Report("lake", "archive", "failed", "no space", T0, T0)]


def test_who_is_not_heard_of_for_a_month_is_forgotten(lab: PipelineLab) -> None:
    lab.tell("lake", "failed")
    lab.clock.advance(UNHEARD_MS)
    assert len(lab.pipelines.failed()) == 1
    lab.clock.advance(1)
    assert lab.pipelines.failed() == []
    lab.restart()
    assert lab.pipelines.all() == []


def test_there_are_so_many_at_most(lab: PipelineLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines_module, "MAX_PIPELINES", 2)
    lab.tell("a")
    lab.tell("b")
    with pytest.raises(ApiError) as refused:
        lab.tell("c")
    assert refused.value.code == "throttled"
    lab.tell("b", "done")
    lab.forget("a")
    lab.tell("c")


def test_those_that_are_on_their_way_count(lab: PipelineLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines_module, "MAX_PIPELINES", 2)
    answers: list[Any] = []

    def tell(name: str) -> None:
        lab.pipelines.tell(name, "archive", "running", "", lambda *told: answers.append(told), answers.append)

    tell("a")
    tell("b")
    with pytest.raises(ApiError):
        tell("c")
    lab.engine.queue.sync_now()
    assert [report.name for report, _ in answers] == ["a", "b"]
    lab.forget("a")
    tell("c")
    lab.engine.queue.refusals.end(WritesOff.STORAGE_FAILED, "the disk refuses")
    assert isinstance(answers[-1], ApiError)
    assert lab.pipelines._coming == 0
