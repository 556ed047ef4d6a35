"""An engine with stages: parts are spooled and committed before the call returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.flow.open_doors import open_doors
from tests.log.harness import Lab
from tests.support.arrow import arrow_stream
from topics.flow.stages.stages import CommitRequest, Committed, Stages
from topics.log.write.commit_loop import CommitLoop


def anything_goes(name: str) -> None:
    return None


class StageLab(Lab):
    stages: Stages

    def layer(self) -> None:
        self.stages = Stages(self.engine, open_doors(self.engine))
        self.engine.register(self.stages)

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
        self, part: str, *batches: dict[str, list[Any]], stage: str = "s", topic: str | None = None
    ) -> Any:
        return self.run(
            lambda: self.stages.put_part(stage, part, arrow_stream(*batches), topic, anything_goes)
        )

    def commit_stage(
        self, *parts: str, batch: int = 0, stage: str = "s", identity: str = "q", topic: str | None = None
    ) -> tuple[dict[str, tuple[int, int, int]], bool]:
        request = CommitRequest(stage, identity, batch, list(parts), topic, anything_goes)
        committed, deduped = self.run(lambda: self.stages.commit(request))
        return ranges(committed), deduped

    def spooled(self) -> list[str]:
        return [path.name for path in sorted((self.directory / "stages").glob("*"))]

    def data(self, name: str) -> list[Any]:
        return [json.loads(line)["data"] for line in self.diff(name).rows.splitlines()]


def ranges(committed: Committed) -> dict[str, tuple[int, int, int]]:
    return {r.topic: (r.first_seq, r.last_seq, r.count) for r in committed.ranges}
