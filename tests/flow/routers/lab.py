"""An engine with routers, driven by hand."""

from __future__ import annotations

from typing import Any

from tests.log.harness import Lab, records
from topics.flow.routers.definitions import Router, RouterOptions
from topics.flow.routers.recovery import RouterRecovery
from topics.flow.routers.registry import Routers
from topics.log.read.filter import parse_match
from topics.log.read.page import Page
from topics.log.read.render import Shape

TAGGED = Shape(tags=True)


class RouterLab(Lab):
    """Reading a topic pulls what its routers owe, as every reader of the server does."""

    routers: Routers
    pulls = True

    def layer(self) -> None:
        self.routers = Routers(self.engine)
        self._journal = RouterRecovery(self.engine, self.routers)
        self.engine.register(self._journal)

    def recovered(self) -> None:
        self._journal.start()

    def route(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        match: object = None,
        create_dest: bool = True,
        **options: Any,
    ) -> bool:
        """Create or change a router; True when it was created."""
        if match is not None:
            parsed = parse_match(match)
            options |= {"filter_value": parsed.value, "filter_is_prefix": parsed.is_prefix}
        answers: list[bool] = []
        self.commit(
            lambda done, fail: self.routers.put(
                name,
                source,
                dest,
                RouterOptions(**options),
                lambda router, created: (answers.append(created), done(router)),
                fail,
                create_dest=create_dest,
            )
        )
        return answers[0]

    def unroute(self, name: str) -> bool:
        deleted: bool = self.commit(lambda done, fail: self.routers.drop(name, done, fail))
        return deleted

    def router(self, name: str) -> Router:
        router = self.routers.find(name)
        assert router is not None
        self.routers.pull(router.dest)
        return router

    def background(self) -> None:
        """The background pass, with all the time it needs."""
        while self.routers.forward(lambda: False):
            pass
        self.engine.queue.sync_now()

    def diff(self, name: str, from_seq: int = 0, *args: Any, **kwargs: Any) -> Page:
        if self.pulls:
            self.routers.pull(self.topic(name))
        return super().diff(name, from_seq, *args, **kwargs)

    def lines(self, name: str) -> tuple[int, int, int]:
        self.routers.pull(self.topic(name))
        return super().lines(name)

    def records(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        from_seq = 0
        while True:
            page = self.diff(name, from_seq, shape=TAGGED)
            found += records(page)
            if page.caught_up:
                return found
            from_seq = page.next_from_seq

    def data(self, name: str) -> list[Any]:
        return [record["data"] for record in self.records(name)]

    def everything(self) -> dict[str, Any]:
        """All that must be the same before and after a restart that loses nothing."""
        if self.pulls:
            self.background()
        topics = {
            name: (self.state(name), self.records(name)) for name in list(self.engine.names_after("", ""))
        }
        routers = {
            router.name: (router.options, router.cursor, router.forwarded, router.source.id, router.dest.id)
            for router in self.routers.table.names_after("", "")
        }
        return {"topics": topics, "routers": routers}


def survives(lab: RouterLab) -> None:
    """Kill and stop, with checkpoints in between: what readers and routers see stays the same."""
    state = lab.everything()
    for step in (
        lambda: lab.restart(),
        lambda: lab.restart(clean=True),
        lambda: (lab.checkpoint(), lab.restart()),
        lambda: (lab.checkpoint(), lab.checkpoint(), lab.restart()),
        lambda: (lab.checkpoint(everything=True), lab.restart(clean=True)),
        lambda: lab.restart(),
    ):
        step()
        assert lab.everything() == state


def seqs_and_data(lab: RouterLab, name: str) -> list[tuple[int, Any]]:
    return [(record["$seq"], record["data"]) for record in lab.records(name)]
