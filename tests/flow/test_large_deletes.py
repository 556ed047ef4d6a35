"""Deletions by tag that ask many files: off the loop, in one moment, and with an answer whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.harness import Lab
from tests.support.appending import append
from topics.core.errors import ApiError
from topics.flow import large_deletes as deleting
from topics.flow.large_deletes import Deletions
from topics.log import DeleteOutcome
from topics.log.lifecycle import drop_topic
from topics.log.read.filter import parse_match
from topics.log.write.commit_loop import CommitLoop


def driven(lab: Lab, scenario: Callable[[Deletions], Any]) -> None:
    """A topic of ten sealed runs, a loop that commits, and a scenario."""
    for at in range(10):
        lab.write("t", *({"data": 4 * at + n, "tag": f"k{n}"} for n in range(4)))
    lab.checkpoint(everything=True)

    async def main() -> None:
        commit = CommitLoop(lab.engine, asyncio.get_running_loop())
        try:
            await scenario(Deletions(lab.engine))
        finally:
            commit.close()

    asyncio.run(main())
    lab.kill()


def deleted(deletions: Deletions, lab: Lab, match: str, before: int | None = None) -> asyncio.Future[int]:
    future = asyncio.get_running_loop().create_future()
    deletions.delete(lab.topic("t"), before, parse_match(match), future.set_result, future.set_exception)
    return future


def test_readers_see_all_of_it_or_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    async def scenario(deletions: Deletions) -> None:
        answer = deleted(deletions, lab, "k1")
        counts = set()
        while not answer.done():
            counts.add(len(lab.seqs("t")))
            await asyncio.sleep(0)
        counts.add(len(lab.seqs("t")))
        assert await answer == 10
        assert counts == {40, 30}
        assert await deleted(deletions, lab, "k*", 9) == 6
        assert lab.topic("t").live_count == 24

    driven(lab, scenario)


def test_what_a_dry_run_finds_in_many_files_is_what_goes(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    named = [*range(1, 41, 4), 2, 77]

    async def scenario(deletions: Deletions) -> None:
        topic = lab.topic("t")
        for match in (parse_match("k0"), None):
            foreseen, done = asyncio.Future[DeleteOutcome](), asyncio.Future[int]()
            deletions.preview(topic, 30, match, foreseen.set_result, foreseen.set_exception, seqs=named)
            assert not foreseen.done(), "files are asked on a thread"
            outcome = await foreseen
            deletions.delete(topic, 30, match, done.set_result, done.set_exception, seqs=named)
            assert await done == outcome.deleted
            assert outcome == DeleteOutcome(outcome.deleted, topic.live_count, topic.live_bytes, topic.floor)
        assert lab.seqs("t") == [seq for seq in range(1, 41) if seq not in named or seq >= 30]

    driven(lab, scenario)


def test_a_topic_that_goes_meanwhile_is_not_found(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    async def scenario(deletions: Deletions) -> None:
        answer = deleted(deletions, lab, "k1")
        dropped = asyncio.get_running_loop().create_future()
        drop_topic(lab.engine, "t", False, dropped.set_result, dropped.set_exception)
        assert await dropped
        with pytest.raises(ApiError) as refusal:
            await answer
        assert refusal.value.code == "topic_not_found"

    driven(lab, scenario)


def found_at_once(
    deletions: Deletions,
    lab: Lab,
    match: str | None = None,
    before: int | None = None,
    seqs: list[int] | None = None,
) -> bool:
    """Whether a dry run was answered before the loop went on, and not on a thread or in turns."""
    future = asyncio.get_running_loop().create_future()
    wanted = None if match is None else parse_match(match)
    deletions.preview(lab.topic("t"), before, wanted, future.set_result, future.set_exception, seqs=seqs)
    return future.done()


def test_only_what_asks_more_than_a_few_files_is_looked_up_ahead(tmp_path: Path) -> None:
    """Each file has four records: below 17 there are four of them, which are a few; below 18, five."""
    lab = Lab(tmp_path)

    async def scenario(deletions: Deletions) -> None:
        assert found_at_once(deletions, lab, before=39), "a cut asks no file for what it has"
        assert found_at_once(deletions, lab, "k1", before=17)
        assert not found_at_once(deletions, lab, "k1", before=18)
        assert found_at_once(deletions, lab, seqs=[1, 5, 9, 13, 14])
        assert not found_at_once(deletions, lab, seqs=[1, 5, 9, 13, 17])
        await asyncio.gather(*deletions._tasks)

    driven(lab, scenario)


def test_seqs_with_a_tag_take_no_other_record_of_that_tag_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are asked ahead, and beside them there are many of that tag in memory."""
    monkeypatch.setattr(deleting, "MANY_MATCHES", 1)
    lab = Lab(tmp_path)
    named = [*range(1, 41, 4), 41]

    async def scenario(deletions: Deletions) -> None:
        topic = lab.topic("t")
        for first in (41, 45, 49):
            future = asyncio.get_running_loop().create_future()
            body = json.dumps(
                {"records": [{"data": n, "tag": "k0"} for n in range(first, first + 4)]}
            ).encode()
            append(lab.engine, "t", body, future.set_result, future.set_exception)
            await future
        done = asyncio.Future[int]()
        deletions.delete(topic, None, parse_match("k0"), done.set_result, done.set_exception, seqs=named)
        assert not done.done()
        assert await done == 11
        assert lab.seqs("t") == [seq for seq in range(1, 53) if seq not in named]

    driven(lab, scenario)
