"""Routers against plain lists: random histories with loss, full destinations, checkpoints and kills."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.flow.routers.lab import RouterLab
from topics.core.config import TopicConfig
from topics.core.settings import MAX_HOPS
from topics.flow.routers.definitions import RouterOptions
from topics.log.lifecycle import put_topic
from topics.log.read import render

LIVE, DELETED, LOST = "live", "deleted", "lost"
TOPICS = st.sampled_from(["a", "b", "c", "d"])
TAGS = st.sampled_from([None, "x", "xy", "z"])
CONFIGS = st.builds(
    TopicConfig,
    cap_records=st.sampled_from([0, 0, 1, 3]),
    cap_bytes=st.sampled_from([0, 0, 0, 12]),
    ttl_ms=st.sampled_from([0, 0, 50]),
    discard=st.sampled_from(["old", "old", "reject"]),
    durability=st.sampled_from(["disk", "fsync"]),
)
OPTIONS = st.builds(
    RouterOptions,
    preserve_node=st.booleans(),
    preserve_tag=st.booleans(),
    filter_value=st.sampled_from([None, None, "x"]),
    filter_is_prefix=st.booleans(),
    allow_cycle=st.just(True),
    exactly_once=st.just(False),
)


@dataclass
class Row:
    ts: int
    data: Any
    tag: str | None
    node: str | None
    hops: int = 0
    fate: str = LIVE

    @property
    def size(self) -> int:
        return len(str(self.data))

    @property
    def way(self) -> int:
        """Routers it has come through. A loss sets out where it happened; a hole, without data, came."""
        return 0 if self.fate == LOST and self.data is not None else self.hops


@dataclass
class Shelf:
    """A topic: everything it ever held, with its fate. Seqs are places in the list."""

    config: TopicConfig
    rows: list[Row] = field(default_factory=list)

    @property
    def live(self) -> list[Row]:
        return [row for row in self.rows if row.fate == LIVE]

    def expire(self, now: int) -> None:
        for row in self.live:
            if self.config.ttl_ms and now - row.ts > self.config.ttl_ms:
                row.fate = LOST

    def room(self, size: int) -> bool:
        if self.config.discard != "reject":
            return True
        held = sum(row.size for row in self.live)
        caps = self.config.cap_records, self.config.cap_bytes
        return not (caps[0] and len(self.live) + 1 > caps[0]) and not (caps[1] and held + size > caps[1])

    def evict(self) -> None:
        config = self.config
        while (config.cap_records and len(self.live) > config.cap_records) or (
            config.cap_bytes and sum(row.size for row in self.live) > config.cap_bytes
        ):
            self.live[0].fate = LOST

    def time(self, now: int) -> int:
        return max([now, *(row.ts for row in self.rows if row.data is not None)])


@dataclass
class Arrow:
    """A router."""

    source: str
    dest: str
    options: RouterOptions
    cursor: int
    forwarded: int = 0
    wants: int = 1


class RoutersAgainstLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.lab = RouterLab(self.directory)
        self.lab.pulls = False
        self.few = render.FEW
        self.shelves: dict[str, Shelf] = {}
        self.arrows: dict[str, Arrow] = {}
        self.written = 0

    def teardown(self) -> None:
        render.FEW = self.few
        self.lab.kill()
        shutil.rmtree(self.directory)

    def now(self) -> int:
        return self.lab.clock.now_ms()

    def shelf(self, name: str) -> Shelf:
        if name not in self.shelves:
            self.shelves[name] = Shelf(TopicConfig())
        self.shelves[name].expire(self.now())
        return self.shelves[name]

    # --- history ----------------------------------------------------------------------------------------

    @initialize(options=OPTIONS, few=st.sampled_from([0, 2, render.FEW]))
    def begin(self, options: RouterOptions, few: int) -> None:
        """Few records at a time are taken apart by themselves, more of them by their columns."""
        render.FEW = few
        self.route("r1", "a", "b", options)

    @rule(name=TOPICS, tags=st.lists(TAGS, min_size=1, max_size=5), node=st.sampled_from([None, "n"]))
    def write(self, name: str, tags: list[str | None], node: str | None) -> None:
        for tag in tags:
            shelf = self.shelf(name)
            if not shelf.room(2):
                return
            self.written += 1
            value = 10 + self.written % 90
            self.lab.write(name, {"data": value, "tag": tag, "node": node})
            shelf.rows.append(Row(shelf.time(self.now()), value, tag, node))
            shelf.evict()

    @rule(name=TOPICS, config=CONFIGS)
    def configure(self, name: str, config: TopicConfig) -> None:
        self.lab.commit(lambda done, fail: put_topic(self.lab.engine, name, config, done, fail))
        shelf = self.shelf(name)
        shelf.config = config
        shelf.expire(self.now())
        shelf.evict()

    @rule(name=TOPICS, plan=st.floats(0, 1), tag=st.sampled_from([None, "x", "z"]))
    def delete(self, name: str, plan: float, tag: str | None) -> None:
        if name not in self.shelves:
            return
        shelf = self.shelf(name)
        before = int(len(shelf.rows) * plan) + 1
        self.lab.delete(name, before=before, match=tag)
        for row in shelf.rows[: before - 1]:
            if row.fate == LIVE and tag in (None, row.tag):
                row.fate = DELETED

    @rule(ms=st.sampled_from([1, 30, 60]))
    def wait(self, ms: int) -> None:
        self.lab.clock.advance(ms)

    @rule(name=st.sampled_from(["r1", "r2", "r3", "r4"]), source=TOPICS, dest=TOPICS, options=OPTIONS)
    def route(self, name: str, source: str, dest: str, options: RouterOptions) -> None:
        fed_from = {arrow.source for arrow in self.arrows.values() if arrow.dest == dest}
        known = self.arrows.get(name)
        if source == dest or fed_from - {source} or (known and (known.source, known.dest) != (source, dest)):
            return
        if known is not None:
            self.settle(known.source)  # a change lets the old definition finish first
        self.lab.commit(
            lambda done, fail: self.lab.routers.put(name, source, dest, options, lambda *_: done(None), fail)
        )
        if known is not None:
            known.options = options
        else:
            self.shelf(dest)
            self.arrows[name] = Arrow(source, dest, options, len(self.shelf(source).rows))

    @rule(name=st.sampled_from(["r1", "r2", "r3", "r4"]))
    def unroute(self, name: str) -> None:
        if name in self.arrows:
            self.settle(self.arrows[name].source)
            assert self.lab.unroute(name)
            del self.arrows[name]

    @rule(name=TOPICS)
    def drop(self, name: str) -> None:
        if name in self.shelves:
            self.lab.drop(name)
            del self.shelves[name]
            self.arrows = {k: a for k, a in self.arrows.items() if name not in (a.source, a.dest)}

    # --- forwarding -------------------------------------------------------------------------------------

    @rule(name=TOPICS)
    def settle(self, name: str) -> None:
        """All routers of one source do what they can."""
        if name not in self.shelves:
            return
        source = self.lab.topic(name)
        moved = True
        while moved:
            moved = self.lab.routers.step(source)
            self.lab.engine.queue.sync_now()
            expected = [self.step(arrow) for arrow in self.in_order(name)]
            assert moved is any(expected)

    def in_order(self, source: str) -> list[Arrow]:
        """Whoever is furthest behind moves first; else it goes by the order in which they were made."""
        arrows = [arrow for arrow in self.arrows.values() if arrow.source == source]
        return sorted(arrows, key=lambda arrow: arrow.cursor)

    def step(self, arrow: Arrow) -> bool:
        source, dest = self.shelf(arrow.source), self.shelf(arrow.dest)
        start, upto = arrow.cursor, len(source.rows)
        now, match = dest.time(self.now()), arrow.options.match
        added: list[Row] = []
        for seq in range(start + 1, upto + 1):
            row = source.rows[seq - 1]
            if row.fate == LOST and row.way < MAX_HOPS:
                if not dest.room(arrow.wants):
                    break
                dest.rows.append(Row(0, None, None, None, row.way + 1, LOST))
            elif row.fate == LIVE and row.way < MAX_HOPS and (match is None or match.matches(row.tag)):
                if not dest.room(row.size):
                    arrow.wants = row.size
                    break
                tag = row.tag if arrow.options.preserve_tag else None
                node = row.node if arrow.options.preserve_node else None
                added.append(Row(now, row.data, tag, node, row.hops + 1))
                dest.rows.append(added[-1])
            else:
                arrow.cursor = seq
                continue
            arrow.cursor = seq
            arrow.forwarded += 1
        else:
            arrow.wants = 1
        dest.evict()
        return arrow.cursor > start

    # --- restarts ---------------------------------------------------------------------------------------

    @rule(everything=st.booleans())
    def checkpoint(self, everything: bool) -> None:
        self.lab.checkpoint(everything=everything)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        before = self.lab.everything()
        self.lab.restart(clean=clean)
        assert self.lab.everything() == before

    @rule(name=TOPICS, written=st.booleans())
    def kill_during_a_step(self, name: str, written: bool) -> None:
        """What reached the operating system has happened, seen or not; the rest has not."""
        if name not in self.shelves:
            return
        self.lab.routers.step(self.lab.topic(name))
        if written:
            self.lab.engine.queue.flush()
            for arrow in self.in_order(name):
                self.step(arrow)
        self.lab.restart()

    # --- what has to be so ------------------------------------------------------------------------------

    @invariant()
    def topics_hold_what_the_lists_hold(self) -> None:
        for name, shelf in self.shelves.items():
            self.shelf(name)
            assert self.lab.topic(name).head == len(shelf.rows)
            found = [
                (r["$seq"], r["$ts"], r["data"], r.get("$tag"), r.get("$node"))
                for r in self.lab.records(name)
            ]
            wanted = [
                (seq, row.ts, row.data, row.tag, row.node)
                for seq, row in enumerate(shelf.rows, 1)
                if row.fate == LIVE
            ]
            assert found == wanted

    @invariant()
    def routers_stand_where_they_should(self) -> None:
        for name, arrow in self.arrows.items():
            router = self.lab.routers.table.named(name)
            assert router is not None
            assert (router.cursor, router.sent, router.forwarded) == (
                arrow.cursor,
                arrow.cursor,
                arrow.forwarded,
            )


TestRoutersAgainstLists = RoutersAgainstLists.TestCase
TestRoutersAgainstLists.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
