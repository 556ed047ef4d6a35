"""What a reader chose, and what lies behind its last records: the same as by looking at each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.harness import T0, Lab, seqs
from tests.support.appending import rows_of
from topics.core.errors import ApiError
from topics.log import read_page
from topics.log.read import page as paging
from topics.log.read.audit import at_once
from topics.log.read.filter import Choice, TagMatch, last_steps, parse_match
from topics.log.run import Run
from topics.storage import Columns

REQUESTS: dict[str, dict[str, Any]] = {
    "all": {},
    "others": {"nodes": frozenset({"n1"})},
    "tagged": {"choice": Choice(parse_match("x"))},
    "since": {"choice": Choice(since_ts=T0 + 300)},
    "until": {"choice": Choice(until_ts=T0 + 500)},
    "all of these": {
        "choice": Choice(parse_match("y"), T0 + 200, T0 + 600),
        "nodes": frozenset({"n2"}),
    },
}


def history(make_lab: Callable[..., Lab], seed: int) -> tuple[Lab, dict[int, tuple[str, str, int]]]:
    """Tag, node and time of each record; some are deleted, some in files, some not visible yet."""
    rng = random.Random(seed)
    lab = make_lab(segment_max_events=rng.choice([2, 4]))
    lab.put("t", cap_records=rng.choice([0, 20]))
    written: dict[int, tuple[str, str, int]] = {}
    for seq in range(1, 31):
        tag, node = rng.choice("xyz"), rng.choice(["n1", "n2"])
        lab.write("t", {"data": seq, "tag": tag, "node": node})
        written[seq] = tag, node, lab.clock.now_ms() - T0
        if rng.random() < 0.3:
            lab.clock.advance(100)
        if rng.random() < 0.15:
            lab.delete("t", seqs=rng.sample(range(1, seq + 1), min(seq, 3)))
    if seed % 2:
        lab.checkpoint(everything=seed % 4 == 1)
        lab.restart(clean=True)
    topic = lab.topic("t")
    topic.append(rows_of([b"1"] * 3, topic.assigned + 1, T0 + 10_000), 0)
    return lab, written


def wanted(
    lab: Lab,
    written: dict[int, tuple[str, str, int]],
    nodes: frozenset[str] = frozenset(),
    choice: Choice | None = None,
) -> list[int]:
    choice = choice or Choice()
    since, until = choice.since_ts or 0, choice.until_ts or 2 * T0
    return [
        seq
        for seq in lab.seqs("t")
        if written[seq][1] not in nodes
        and since <= written[seq][2] + T0 < until
        and (choice.match is None or choice.match.matches(written[seq][0]))
    ]


def test_records_without_any_tag_match_none(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_each("t", 6)
    lab.write("t", {"data": 1, "tag": "x"})
    lab.checkpoint()
    choice = Choice(parse_match("x"))
    assert seqs(read_page(lab.engine, lab.topic("t"), 0, 100, 1 << 20, choice=choice)) == [7]
    assert at_once(last_steps(lab.topic("t"), 2, None, choice)) == 0


@pytest.mark.parametrize("asked", REQUESTS)
@pytest.mark.parametrize("seed", range(6))
def test_the_last_records_are_those_that_a_reader_would_get_last(
    make_lab: Callable[..., Lab], seed: int, asked: str
) -> None:
    lab, written = history(make_lab, seed)
    topic = lab.topic("t")
    found = wanted(lab, written, **REQUESTS[asked])
    for count in range(1, len(found) + 3):
        cursor = at_once(last_steps(topic, count, **REQUESTS[asked]))
        assert cursor == (found[-count] - 1 if count <= len(found) else topic.floor - 1)
    assert at_once(last_steps(topic, 0, **REQUESTS[asked])) == topic.head == 30


@pytest.fixture
def opened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which of three runs of four, each in a file of its own, were looked into."""
    for _ in range(12):
        lab.write("t", {"data": 0, "tag": "x"})
        lab.clock.advance(100)
    lab.checkpoint(everything=True)
    lab.restart(clean=True)
    found: list[int] = []
    store = lab.topic("t").store
    columns = store.columns

    def noted(run: Run) -> Columns:
        found.append(run.base)
        return columns(run)

    monkeypatch.setattr(store, "columns", noted)
    return found


def test_a_page_that_has_cost_enough_looks_into_no_further_run(
    lab: Lab, opened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MOST_EXAMINED", 4)
    page = read_page(lab.engine, lab.topic("t"), 0, 100, 1 << 20, choice=Choice(parse_match("y")))
    assert (page.next_from_seq, page.count, opened) == (4, 0, [1])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, [5]),
        ({"choice": Choice(until_ts=T0 + 400)}, [1]),
        ({"choice": Choice(since_ts=T0 + 800)}, [9]),
        ({"choice": Choice(since_ts=T0 + 700)}, [9, 5]),
        ({"choice": Choice(parse_match("y"))}, [9, 5, 1]),
    ],
    ids=["all", "until", "since", "since earlier", "tagged"],
)
def test_runs_without_what_is_wanted_are_not_looked_into(
    lab: Lab, opened: list[int], request_: dict[str, Any], expected: list[int]
) -> None:
    at_once(last_steps(lab.topic("t"), 7, **request_))
    assert opened == expected


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
