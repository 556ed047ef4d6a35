"""Which routers may exist: names, one source, no re-pointing, the cap, no loops, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.routers.lab import RouterLab
from topics.flow.routers.definitions import RouterOptions
from topics.values.errors import ApiError


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


@pytest.mark.parametrize(
    ("name", "source", "dest"),
    [("", "a", "b"), (">r", "a", "b"), ("r!", "a", "b"), ("r", "a", "a"), ("r", "", "b"), ("r", "a>b", "c")],
)
def test_bad_names_are_refused(lab: RouterLab, name: str, source: str, dest: str) -> None:
    assert refusal(lambda: lab.route(name, source, dest)).code == "invalid_request"
    assert topics(lab) == []


def test_a_router_name_may_contain_an_arrow(lab: RouterLab) -> None:
    assert lab.route("a->b", "a", "b")


def test_without_leave_to_create_the_destination_nothing_is_created(lab: RouterLab) -> None:
    error = refusal(lambda: lab.route("r", "a", "b", create_dest=False))
    assert (error.code, error.detail) == ("topic_not_found", {"topic": "b"})
    assert topics(lab) == []
    lab.put("b")
    assert lab.route("r", "a", "b", create_dest=False)


def test_a_destination_has_one_source(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    error = refusal(lambda: lab.route("other", "x", "b"))
    assert error.code == "topic_exists_incompatible"
    assert error.detail == {"topic": "b", "reason": "router_dest_fan_in"}
    assert topics(lab) == ["a", "b"]
    assert lab.route("twin", "a", "b")


def test_an_existing_router_cannot_be_pointed_elsewhere(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    for source, dest in (("x", "b"), ("a", "x"), ("x", "y")):
        error = refusal(lambda source=source, dest=dest: lab.route("r", source, dest))
        assert error.code == "topic_exists_incompatible"
        assert error.detail == {
            "router": "r",
            "reason": "router_repoint_forbidden",
            "existing_source": "a",
            "existing_dest": "b",
        }
    assert topics(lab) == ["a", "b"]


def test_a_second_source_is_reported_before_a_new_end(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.route("s", "c", "d")
    assert refusal(lambda: lab.route("r", "a", "d")).detail == {"topic": "d", "reason": "router_dest_fan_in"}


def test_a_loop_is_refused_with_its_way(lab: RouterLab) -> None:
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    error = refusal(lambda: lab.route("ca", "c", "a"))
    assert (error.code, error.detail) == ("router_cycle", {"cycle": ["c", "a", "b", "c"]})
    assert refusal(lambda: lab.route("ba", "b", "a")).detail == {"cycle": ["b", "a", "b"]}
    assert lab.route("ca", "c", "a", allow_cycle=True)


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


def test_dropping_a_topic_takes_its_routers_along(lab: RouterLab) -> None:
    lab.route("in", "a", "b")
    lab.route("out", "b", "c")
    lab.route("else", "x", "y")
    assert lab.routers.touching("b", lambda _: True) == ["in", "out"]
    assert lab.routers.touching("b", lambda name: name == "out") == ["out"]
    lab.drop("b")
    assert [router.name for router in lab.routers.table.names_after("", "")] == ["else"]
    assert lab.routers.touching("b", lambda _: True) == []
    lab.restart()
    assert [router.name for router in lab.routers.table.names_after("", "")] == ["else"]
    lab.write("a", 1)
    assert lab.routers.table.from_source(lab.topic("a")) == []


def test_deleting_a_router_leaves_the_copies(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    assert lab.unroute("r")
    lab.write("a", 2)
    assert lab.data("b") == [1]
    assert not lab.unroute("r")
    lab.restart()
    assert lab.routers.find("r") is None
    assert lab.data("b") == [1]


def test_a_name_is_free_again_after_deletion(lab: RouterLab) -> None:
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.unroute("r")
    lab.write("a", 2)
    assert lab.route("r", "a", "c")
    lab.write("a", 3)
    assert (lab.data("b"), lab.data("c")) == ([1], [3])


def test_names_are_listed_in_order(lab: RouterLab) -> None:
    for name in ("b2", "a", "b1", "c"):
        lab.route(name, "s", "d-" + name)
    names = lambda after, prefix: [r.name for r in lab.routers.table.names_after(after, prefix)]  # noqa: E731
    assert names("", "") == ["a", "b1", "b2", "c"]
    assert names("a", "") == ["b1", "b2", "c"]
    assert names("", "b") == ["b1", "b2"]
    assert names("b1", "b") == ["b2"]
    assert names("a", "b") == ["b1", "b2"]
