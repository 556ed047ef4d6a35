"""The log's part of an erasure: deleted in every topic it may be in, then purged from the server's disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark_topics.errors import PipelineFailed
from topics.client import Client, Refused

# Records in the middle of being copied by a router turn up behind the first pass.
MAX_ROUNDS = 10
POLL_S = 0.2
# A server that restarts forgets a purge; then it is begun again.
MAX_PURGES = 3


@dataclass
class LogErasure:
    client: Client
    tag: str
    stop: threading.Event
    # Topics that are meant, whether they are still there or not.
    scope: frozenset[str] = frozenset()
    deleted: dict[str, int] = field(default_factory=dict)
    # Copies without the tag, by which nobody can find them.
    tagless: list[str] = field(default_factory=list)
    keeps_arriving: bool = False

    def choose(self, topics: Iterable[str], pattern: str | None) -> list[str]:
        """The topics that were named, or all, and those that routers copy them to; returns what is there."""
        known = set(self.client.topic_names())
        if pattern is not None:
            chosen = {name for name in known if re.fullmatch(pattern, name)}
        else:
            chosen = set(topics) or set(known)
        routers = list(self.client.routers())
        reached = self._follow(chosen, routers)
        self.scope = frozenset(reached)
        self.tagless = [
            f'router "{one["router"]}" copies {one["source"]} to {one["dest"]} without tags'
            for one in routers
            if one["source"] in reached and not one["preserve_tag"]
        ]
        return sorted(reached & known)

    @staticmethod
    def _follow(chosen: set[str], routers: list[dict[str, Any]]) -> set[str]:
        reached = set(chosen)
        while True:
            found = {one["dest"] for one in routers if one["source"] in reached} - reached
            if not found:
                return reached
            reached |= found

    def delete(self, topics: list[str], say: Callable[[int], None]) -> None:
        """Until there is nothing left to delete."""
        self.deleted = dict.fromkeys(topics, 0)
        for _ in range(MAX_ROUNDS):
            found = 0
            for topic in topics:
                count = self._delete(topic)
                if count:
                    say(count)
                found += count
            if not found:
                return
        self.keeps_arriving = True

    def _delete(self, topic: str) -> int:
        try:
            count: int = self.client.delete_tagged(topic, self.tag)["deleted"]
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
            return 0  # gone meanwhile, and everything in it
        self.deleted[topic] += count
        return count

    def purge(self, topics: list[str], say: Callable[[str], None]) -> dict[str, Any]:
        """Returns once the disk holds none of it; readers that have files open are waited for."""
        for _ in range(MAX_PURGES):
            state = self._purge(topics, say)
            if state is not None:
                break
        else:
            raise PipelineFailed("the server keeps restarting in the middle of the purge: run this again")
        if state["state"] == "failed":
            raise PipelineFailed(f"the server could not purge its files: {state['error']}; run this again")
        return state

    def _purge(self, topics: list[str], say: Callable[[str], None]) -> dict[str, Any] | None:
        state = self.client.start_purge(topics)
        while state["state"] not in ("done", "failed"):
            if self.stop.wait(POLL_S):
                raise PipelineFailed("stopped before the purge was done: run this again")
            held = state["files_held"]
            say(f"readers or backups hold {held} files" if held else f"purging: {state['phase']}")
            try:
                state = self.client.purge(state["purge"])
            except Refused as refusal:
                if refusal.code != "not_found":
                    raise
                return None
        return state
