"""Topics come, change and go."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.log.harness import Lab
from tests.support.appending import append, body_of
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.log.lifecycle import preview_topic


def test_as_many_topics_are_made_as_may_be(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(max_topics=2)
    lab.put("a")
    assert preview_topic(lab.engine, "b", TopicConfig()) == 0
    lab.put("b")
    for make in (lambda: lab.put("c"), lambda: preview_topic(lab.engine, "c", TopicConfig())):
        with pytest.raises(ApiError) as refused:
            make()
        assert refused.value.detail == {"limit": "max_topics", "max": 2}


def test_records_below_the_floor_of_a_run_are_not_counted_again(lab: Lab) -> None:
    lab.write_each("t", 2)
    lab.clock.advance(10_000)
    lab.write_each("t", 2)
    lab.delete("t", before=2)
    assert preview_topic(lab.engine, "t", TopicConfig(ttl_ms=5000)) == 1


def test_an_append_that_is_not_committed_counts_as_a_record(lab: Lab) -> None:
    lab.write("t", 1)
    append(lab.engine, "t", body_of(2), print, print)
    with pytest.raises(ApiError) as refused:
        lab.drop("t", if_empty=True)
    assert refused.value.detail == {"topic": "t", "count": 2}


def test_a_name_whose_creation_failed_is_free(lab: Lab) -> None:
    journal = lab.engine.journal
    file = journal._file

    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    journal._file = SimpleNamespace(  # type: ignore[assignment]
        write=full, truncate=lambda _: None, sync=lambda: None, fileno=file.fileno, path=file.path
    )
    with pytest.raises(ApiError) as refused:
        lab.put("t")
    assert refused.value.code == "disk_full"
    journal._file = file
    lab.engine.resume_writes()
    assert "t" not in lab.engine.by_name
    assert lab.put("t") is True
    lab.restart()
    assert lab.engine.find("t") is not None


@pytest.mark.parametrize("is_there", [False, True])
def test_a_full_disk_that_is_found_by_looking_at_the_clock_leaves_names_as_they_are(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """That the clock was set back is journalled, or cannot be: then the topic is not made, nor is it gone."""
    if is_there:
        lab.put("t")
    engine, look = lab.engine, lab.engine.now

    def finds_no_room() -> int:
        engine.queue.refusals.note_full()
        engine.queue.refusals.is_stuck = True
        return look()

    monkeypatch.setattr(engine, "refresh", lambda topic: None)
    monkeypatch.setattr(engine, "now", finds_no_room)
    with pytest.raises(ApiError, match="disk is full"):
        lab.drop("t") if is_there else lab.put("t")
    monkeypatch.undo()
    assert ("t" in engine.by_name) is is_there
    assert list(engine.names_after("", "")) == (["t"] if is_there else [])
