"""Definitions of routers, and which of them move when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow.routers.lab import RouterLab
from tests.log.harness import records as rows_of
from tests.support.appending import append
from topics.core.config import FORGOTTEN_MS, FRESH
from topics.core.errors import ApiError
from topics.flow.routers.definitions import RouterOptions
from topics.flow.routers.registry import STEP_COPIES, in_portions, step_rows
from topics.log import Amount, begin_import


@given(routers=st.integers(1, 5000), records=st.integers(1, 3000))
def test_every_router_is_in_one_portion_and_portions_are_no_more_than_records(
    routers: int, records: int
) -> None:
    # Who they are does not matter here.
    everyone: list[Any] = list(range(routers))
    portions = list(in_portions(everyone, records))
    assert [router for some in portions for router in some] == everyone
    assert len(portions) <= records
    largest = max(map(len, portions))
    moved = largest * min(records, step_rows(largest))
    # As large as a step may be, unless one more portion would be one more than there are records.
    assert moved <= 2 * STEP_COPIES or len(portions) == records or largest == 1


def test_one_that_is_behind_comes_up_to_the_next_and_they_go_on_together(lab: RouterLab) -> None:
    lab.pulls = False
    lab.route("first", "a", "b")
    lab.write("a", *range(5))
    lab.route("second", "a", "c")
    lab.write("a", *range(5))
    routers = [lab.routers.table.named(name) for name in ("first", "second")]
    sent = []
    for _ in range(2):
        lab.routers.forward(lambda: True)
        sent.append([router.sent for router in routers if router is not None])
    assert sent == [[5, 5], [10, 10]]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_router_put_while_its_namesake_is_on_its_way_out_is_a_new_one(
    lab: RouterLab, crashed: bool
) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    answers: list[object] = []
    lab.routers.drop("r", answers.append, answers.append)
    assert lab.routers.find("r") is None
    lab.routers.put(
        "r", "a", "b", RouterOptions(), lambda _, created: answers.append(created), answers.append
    )
    lab.engine.queue.sync_now()
    assert answers == [True, True], "deleted, then created"
    if crashed:
        lab.restart(clean=False)
    assert lab.router("r").id == 2
    lab.write("a", 2)
    assert lab.data("b") == [1, 2]


@pytest.mark.parametrize("in_background", [False, True])
def test_only_what_is_visible_is_forwarded(lab: RouterLab, in_background: bool) -> None:
    """A write that waits for the disk may still fail, and its copy would be there all the same."""
    lab.put("a", durability="fsync")
    lab.route("r", "a", "b")
    lab.pulls = False
    lab.write("a", 1)
    answers: list[object] = []
    append(lab.engine, "a", b'{"records":[{"data":2}]}', answers.append, answers.append)
    assert (lab.topic("a").head, lab.topic("a").assigned) == (1, 2)
    for _ in range(2):
        lab.routers.step(lab.topic("a"), (lambda: False) if in_background else None)
        lab.engine.queue.flush()
    assert not answers
    assert lab.topic("b").assigned == 1
    lab.engine.queue.sync_now()
    lab.background()
    assert lab.data("b") == [1, 2]


def test_a_destination_of_a_large_commit_gets_its_copies_behind_it(lab: RouterLab) -> None:
    """Nothing is copied there meanwhile: other destinations would have to wait for that step, too."""
    engine = lab.engine
    for name in ("held", "free"):
        lab.route(f"to-{name}", "source", name)
    amounts = [Amount(lab.topic("held"), 3, 3)]
    operation = begin_import(engine, amounts, engine.now(), lambda: None, lambda error: None)
    lab.write("source", 1, 2)
    while lab.routers.forward(lambda: False):
        pass
    engine.queue.sync_now()
    assert (lab.topic("held").head, lab.topic("held").assigned, lab.topic("free").head) == (0, 3, 2)
    lab.diff("held")
    assert lab.topic("held").assigned == 3
    engine.queue.abandon(operation, ApiError("internal", "given up"))
    lab.routers.note_all_owing()
    lab.routers.forward(lambda: False)
    assert [row["data"] for row in rows_of(lab.diff("held"))] == [1, 2]


def read(lab: RouterLab, name: str) -> set[str]:
    """Whose writers matter more for a reader of this topic, long after any other."""
    lab.clock.advance(FORGOTTEN_MS)
    lab.engine.note_read(lab.topic(name))
    topics = lab.engine.by_name.values()
    return {topic.name for topic in topics if lab.engine.priority_of_writers(topic) == FRESH}


def test_what_is_copied_matters_as_much_as_its_copies(lab: RouterLab) -> None:
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    lab.route("ad", "a", "d")
    for _ in range(2):
        assert (read(lab, "c"), read(lab, "d"), read(lab, "a")) == ({"a", "b", "c"}, {"a", "d"}, {"a"})
        lab.restart()
    lab.route("second", "b", "c")
    for name, read_with_c in (("bc", {"a", "b", "c"}), ("second", {"c"})):
        lab.unroute(name)
        assert read(lab, "c") == read_with_c
    lab.drop("a")
    assert (read(lab, "b"), read(lab, "d")) == ({"b"}, {"d"})


def test_nobody_has_read_a_topic_whose_copies_were_read(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    read(lab, "b")
    assert (lab.topic("a").last_read_ts, lab.topic("b").last_read_ts) == (None, lab.clock.now_ms())
    assert [lab.engine.priority_of(lab.topic(name)) for name in "ab"] == [0, FRESH]
    lab.clock.advance(FORGOTTEN_MS)
    lab.engine.note_read(lab.topic("a"))
    assert [lab.engine.priority_of_writers(lab.topic(name)) for name in "ab"] == [FRESH, 0]


def test_readers_of_a_circle_of_routers_matter_all_round(lab: RouterLab) -> None:
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    lab.route("ca", "c", "a", allow_cycle=True)
    assert read(lab, "b") == {"a", "b", "c"}


def refusal(call: Callable[[], Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def topics(lab: RouterLab) -> list[str]:
    return list(lab.engine.names_after("", ""))


def test_the_cap_counts_new_routers_only(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_routers=1)
    lab.route("r", "a", "b")
    error = refusal(lambda: lab.route("s", "c", "d"))
    assert (error.code, error.detail) == ("throttled", {"limit": "max_routers", "max": 1})
    assert topics(lab) == ["a", "b"]
    assert not lab.route("r", "a", "b", preserve_tag=False)
    lab.unroute("r")
    assert lab.route("s", "c", "d")


def test_room_for_one_topic_is_not_enough_for_two(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_topics=1)
    error = refusal(lambda: lab.route("r", "a", "b"))
    assert (error.code, error.detail) == ("throttled", {"limit": "max_topics", "max": 1})
    assert topics(lab) == []


def test_two_creations_under_way_make_one_router(lab: RouterLab) -> None:
    answers: list[bool] = []
    for _ in range(2):
        lab.routers.put(
            "r", "a", "b", RouterOptions(), lambda _, created: answers.append(created), answers.append
        )
    assert lab.routers.find("r") is None
    lab.engine.queue.sync_now()
    assert answers == [True, False]
    assert len(lab.routers.table) == 1
