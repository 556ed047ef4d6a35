"""Which routers may exist: names, one source, no re-pointing, the cap, no loops, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from topics.core.errors import ApiError
from topics.flow.routers.definitions import RouterOptions


def refusal(call: Callable[[], Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def topics(lab: RouterLab) -> list[str]:
    return list(lab.engine.names_after("", ""))


def test_creation_makes_both_topics_and_repeating_it_changes_nothing(lab: RouterLab) -> None:
    assert lab.route("r", "a", "b")
    assert topics(lab) == ["a", "b"]
    lab.write("a", 1)
    assert not lab.route("r", "a", "b")
    assert lab.data("b") == [1]
    assert lab.router("r").forwarded == 1


def test_a_second_source_is_reported_before_a_new_end(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.route("s", "c", "d")
    assert refusal(lambda: lab.route("r", "a", "d")).detail == {"topic": "d", "reason": "router_dest_fan_in"}


def test_loops_through_routers_that_were_allowed_count_too(lab: RouterLab) -> None:
    lab.route("ab", "a", "b")
    lab.route("ba", "b", "a", allow_cycle=True)
    assert refusal(lambda: lab.route("twin", "a", "b")).code == "router_cycle"
    assert refusal(lambda: lab.route("ba", "b", "a")).code == "router_cycle"
    assert refusal(lambda: lab.route("ab", "a", "b")).code == "router_cycle"


def test_its_own_edge_is_left_out_of_the_check(lab: RouterLab) -> None:
    lab.route("ab", "a", "b", allow_cycle=True)
    assert not lab.route("ab", "a", "b", allow_cycle=False)


def test_the_cap_counts_new_routers_only(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_routers=1)
    lab.route("r", "a", "b")
    error = refusal(lambda: lab.route("s", "c", "d"))
    assert (error.code, error.detail) == ("throttled", {"limit": "max_routers", "max": 1})
    assert topics(lab) == ["a", "b"]
    assert not lab.route("r", "a", "b", preserve_tag=False)
    lab.unroute("r")
    assert lab.route("s", "c", "d")


def test_the_cap_is_reported_before_a_loop(tmp_path: Path) -> None:
    lab = RouterLab(tmp_path, max_routers=1)
    lab.route("ab", "a", "b")
    assert refusal(lambda: lab.route("ba", "b", "a")).code == "throttled"


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


def test_a_name_is_free_again_after_deletion(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.unroute("r")
    lab.write("a", 2)
    assert lab.route("r", "a", "c")
    lab.write("a", 3)
    assert (lab.data("b"), lab.data("c")) == ([1], [3])
