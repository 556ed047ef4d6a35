"""An engine with stages: parts are spooled and committed before the call returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.flow.open_admission import open_admission
from tests.log.harness import Lab
from tests.support.arrow import arrow_stream
from topics.flow.large_appends import LARGE_BYTES
from topics.flow.load_shedder import LoadShedder
from topics.flow.stages.identities import Commit
from topics.flow.stages.stages import CommitRequest, Stages
from topics.log.write.commit_loop import CommitLoop


def anything_goes(name: str) -> None:
    return None


def request_of(
    *parts: str,
    batch: int = 0,
    stage: str = "s",
    identity: str = "q",
    topic: str | None = None,
    owner: str = "",
) -> CommitRequest:
    return CommitRequest(owner, stage, identity, batch, list(parts), topic)


class StageLab(Lab):
    """`large_bytes`: commits of more than that go into segments; 0 for all."""

    stages: Stages
    large_bytes = LARGE_BYTES

    def layer(self) -> None:
        self.load_shedder = LoadShedder()
        self.stages = Stages(self.engine, open_admission(self.engine, self.load_shedder))
        self.stages.large_bytes = self.large_bytes
        self.engine.register(self.stages.identities)

    def run(self, work: Callable[[], Any]) -> Any:
        """On a loop that commits what is submitted."""

        async def main() -> Any:
            committing = CommitLoop(self.engine, asyncio.get_running_loop())
            try:
                return await work()
            finally:
                committing.close()

        return asyncio.run(main())

    def part(
        self,
        part: str,
        *batches: dict[str, list[Any]],
        stage: str = "s",
        topic: str | None = None,
        owner: str = "",
    ) -> Any:
        body = arrow_stream(*batches)
        return self.run(lambda: self.stages.put_part(owner, stage, part, body, topic, anything_goes))

    def commit_stage(self, *parts: str, **more: Any) -> tuple[dict[str, tuple[int, int, int]], bool]:
        request = request_of(*parts, **more)
        commit, deduped = self.run(lambda: self.stages.commit(request))
        return ranges(commit), deduped

    def commit_nothing(self, batches: range, owner: str = "") -> None:
        """One commit for each of these numbers, none of which was there before."""

        async def all_of_them() -> None:
            for batch in batches:
                _, deduped = await self.stages.commit(request_of(batch=batch, owner=owner))
                assert not deduped

        self.run(all_of_them)

    def drop_stage(self, stage: str, owner: str = "") -> int:
        found: int = self.run(lambda: self.stages.drop(owner, stage))
        return found

    def collect(self) -> None:
        self.run(self.stages.collect)

    def spooled(self) -> list[str]:
        return [path.name for path in sorted((self.directory / "stages").glob("*"))]

    def data(self, name: str) -> list[Any]:
        return [json.loads(line)["data"] for line in self.diff(name).rows.splitlines()]


class LargeLab(StageLab):
    large_bytes = 0


def ranges(commit: Commit) -> dict[str, tuple[int, int, int]]:
    return {r.topic: (r.first_seq, r.last_seq, r.count) for r in commit.ranges}
