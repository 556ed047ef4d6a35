"""An engine in a directory of its own, driven by hand: every call commits before it returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.appending import Appended, ByHand, append
from tests.support.disk import QuickDisk
from topics.core.clock import ManualClock
from topics.core.config import TopicConfig
from topics.core.errors import ApiError
from topics.core.settings import Settings
from topics.log import delete_records, read_page
from topics.log.engine import Engine
from topics.log.lifecycle import drop_topic, put_topic
from topics.log.read.filter import TagMatch, parse_match
from topics.log.read.page import Page
from topics.log.read.render import STORED, Shape
from topics.log.recover.recovery import Recovery
from topics.log.remove import ledger
from topics.log.run import HotColumns
from topics.log.seal.checkpoint import Checkpointer
from topics.log.topic import Topic
from topics.storage.fileheader import FILE_HEADER_BYTES
from topics.storage.frame import HEADER_BYTES
from topics.storage.journal import decode_file_header
from topics.storage.journal_reader import read_frame

T0 = 1_700_000_000_000


@dataclass
class JournalFrame:
    """Where a frame lies in a journal file, for tests that damage it."""

    path: Path
    offset: int
    end: int
    kind: int
    first_seq: int

    @property
    def payload_at(self) -> int:
        return self.offset + HEADER_BYTES


class Lab:
    """One data directory, and the engine that currently owns it."""

    def __init__(self, directory: str | Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.directory = Path(directory)
        self.clock = clock or ManualClock(T0)
        self.settings = {"segment_max_events": 4, "hot_bytes": 1} | settings
        self.disk = QuickDisk()
        self.engine: Engine
        self.checkpointer: Checkpointer
        self.open()

    # --- life -------------------------------------------------------------------------------------------

    def open(self) -> None:
        settings = Settings(data_dir=str(self.directory), **self.settings)
        self.engine = Engine(settings, self.disk, self.clock)
        self.layer()
        self.checkpointer = Recovery(self.engine).run()
        self.recovered()

    def layer(self) -> None:
        """What stands on the engine, and has to be there before it reads its journal."""

    def recovered(self) -> None:
        """The journal has been read."""

    def close(self, *, clean: bool) -> None:
        self.engine.close(clean=clean)

    def kill(self) -> None:
        self.close(clean=False)

    def stop(self) -> None:
        self.close(clean=True)

    def restart(self, *, clean: bool = False) -> None:
        self.close(clean=clean)
        self.open()

    def checkpoint(self, *, everything: bool = False) -> None:
        self.checkpointer.run_now(everything=everything)

    # --- calls ------------------------------------------------------------------------------------------

    def commit(self, call: Callable[[Callable[[Any], None], Callable[[ApiError], None]], None]) -> Any:
        """Make a call, commit it, and return its answer or raise its refusal."""
        answers: list[Any] = []
        refusals: list[ApiError] = []
        call(answers.append, refusals.append)
        self.engine.queue.sync_now()
        if refusals:
            raise refusals[0]
        assert len(answers) == 1
        return answers[0]

    def put(self, name: str, **config: Any) -> bool:
        created: bool = self.commit(
            lambda done, fail: put_topic(self.engine, name, TopicConfig(**config), done, fail)
        )
        return created

    def write(self, name: str, *records: Any, key: str | None = None, **request: Any) -> Appended:
        """Each record is a dictionary with `data`, or a bare value that becomes the data."""
        body = {"records": [r if isinstance(r, dict) and "data" in r else {"data": r} for r in records]}
        text = json.dumps(body | request).encode()
        given = None if key is None else key.encode()
        appended: Appended = self.commit(
            lambda done, fail: append(self.engine, name, text, done, fail, key=given)
        )
        return appended

    def turn(self, *requests: tuple[str, bytes] | tuple[str, bytes, str]) -> list[Appended | ApiError]:
        """Append requests (name, body, key) that arrive in one turn of the loop; return their results."""
        results: dict[int, Appended | ApiError] = {}
        for index, (name, body, *keys) in enumerate(requests):
            note = partial(results.__setitem__, index)
            key = keys[0].encode() if keys else None
            self.engine.append(ByHand(name, body, note, note, key))
        self.engine.queue.sync_now()
        return [results[index] for index in range(len(requests))]

    def write_each(self, name: str, count: int, **fields: Any) -> None:
        """`count` writes of one small record."""
        for number in range(count):
            self.write(name, {"data": number, **fields})

    def delete(
        self,
        name: str,
        before: int | None = None,
        match: object = None,
        seqs: Sequence[int] | None = None,
    ) -> int:
        parsed: TagMatch | None = None if match is None else parse_match(match)
        topic = self.topic(name)
        deleted: int = self.commit(
            lambda done, fail: delete_records(self.engine, topic, before, parsed, done, fail, seqs=seqs)
        )
        return deleted

    def drop(self, name: str, *, if_empty: bool = False) -> bool:
        deleted: bool = self.commit(lambda done, fail: drop_topic(self.engine, name, if_empty, done, fail))
        return deleted

    def diff(
        self,
        name: str,
        from_seq: int = 0,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        *,
        nodes: frozenset[str] | None = None,
        shape: Shape = STORED,
        epoch: int | None = None,
    ) -> Page:
        return read_page(
            self.engine, self.topic(name), from_seq, limit, max_bytes, nodes=nodes, shape=shape, epoch=epoch
        )

    # --- looking ----------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        return self.engine.require(name)

    def lines(self, name: str) -> tuple[int, int, int]:
        """Head, floor and loss line as they are now."""
        topic = self.topic(name)
        self.engine.refresh(topic)
        return topic.head, topic.floor, topic.loss_line

    def seqs(self, name: str, from_seq: int = 0) -> list[int]:
        """Every seq a reader receives who follows the cursor until it is caught up."""
        found: list[int] = []
        while True:
            page = self.diff(name, from_seq)
            found += [record["$seq"] for record in records(page)]
            if page.caught_up:
                return found
            assert page.next_from_seq > from_seq or page.tombstone is not None
            from_seq = page.next_from_seq

    def gaps(self, name: str, from_seq: int = 0) -> list[tuple[int, int, str]]:
        """Every announcement that same reader gets."""
        found: list[tuple[int, int, str]] = []
        while True:
            page = self.diff(name, from_seq)
            if page.tombstone is not None:
                found.append(gap(page))
            if page.caught_up:
                return found
            from_seq = page.next_from_seq

    def state(self, name: str) -> dict[str, Any]:
        """Everything about a topic that must survive: equal before and after a lossless restart."""
        topic = self.topic(name)
        self.engine.refresh(topic)
        # Read first: a damaged segment is found out by whoever reads it.
        delivered, announced = self.seqs(name), self.gaps(name)
        return {
            "epoch": topic.id,
            "config": topic.config,
            "head": topic.head,
            "floor": topic.floor,
            "lines": (topic.cap_hi, topic.ttl_hi, topic.lost_hi, topic.trim_hi),
            "count": topic.live_count,
            "bytes": topic.live_bytes,
            "delete_below": topic.delete_below,
            "account": account(topic),
            "seqs": delivered,
            "gaps": announced,
        }

    def states(self) -> dict[str, dict[str, Any]]:
        return {name: self.state(name) for name in self.engine.names_after("", "")}

    # --- files ------------------------------------------------------------------------------------------

    def journal_files(self) -> list[Path]:
        return sorted((self.directory / "journal").glob("*.journal"))

    def segment_files(self) -> list[Path]:
        return sorted((self.directory / "segments").glob("*.segment"))

    def snapshot_files(self) -> list[Path]:
        return sorted((self.directory / "snapshots").glob("*.snapshot"))

    def frames(self) -> list[JournalFrame]:
        """Every intact frame of every journal file, in order."""
        found = []
        for path in self.journal_files():
            data = memoryview(path.read_bytes())
            assert decode_file_header(data) is not None
            at = FILE_HEADER_BYTES
            while at < len(data):
                frame, _ = read_frame(data, at, 0)
                if frame is None:
                    break
                found.append(JournalFrame(path, at, frame.end, frame.kind, frame.first_seq))
                at = frame.end
        return found


def records(page: Page) -> list[dict[str, Any]]:
    return [json.loads(line) for line in page.rows.splitlines()]


def seqs(page: Page) -> list[int]:
    return [record["$seq"] for record in records(page)]


def gap(page: Page) -> tuple[int, int, str]:
    assert page.tombstone is not None
    return page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason


def account(topic: Topic) -> list[tuple[int, int, str]]:
    """Why each seq below the floor is gone: the ledger and the holes as one merged list of ranges."""
    ranges = [*topic.ledger.ranges()]
    ranges += [(hole.first, min(hole.last, topic.floor - 1), hole.kind) for hole in topic.holes]
    merged: list[tuple[int, int, str]] = []
    for first, last, kind in sorted(ranges):
        name = ledger.KIND_NAMES[kind]
        if last < first:
            continue
        if merged and merged[-1][1] + 1 == first and merged[-1][2] == name:
            merged[-1] = (merged[-1][0], last, name)
        else:
            merged.append((first, last, name))
    return merged


def short_of_memory(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> None:
    """Rows find their place in memory so many times more; then they do half of it."""
    extend, left = HotColumns.extend, [None] * after

    def fail(self: HotColumns, *args: Any) -> int:
        added = extend(self, *args)
        if left:
            left.pop()
            return added
        raise MemoryError

    monkeypatch.setattr(HotColumns, "extend", fail)


def check_loss(lab: Lab, name: str, acked: int) -> None:
    """Whatever is not delivered is announced, and the seqs that were acknowledged stay used up."""
    topic = lab.topic(name)
    assert topic.head >= acked
    delivered = set(lab.seqs(name))
    announced = {seq for first, last, _ in lab.gaps(name) for seq in range(first, last + 1)}
    assert delivered | announced >= set(range(1, topic.head + 1)), "something vanished in silence"
    assert all(reason == "cap" for *_, reason in lab.gaps(name))
    before = lab.states()
    lab.restart()
    assert lab.states() == before, "recovering twice is not the same as once"
    head = lab.topic(name).head
    assert lab.write(name, "next").first_seq == head + 1


def three_segments(lab: Lab, **config: object) -> None:
    """Three segments of four records, and two records in memory."""
    lab.put("t", **config)
    lab.write_each("t", 14, tag="x")
    lab.checkpoint()
    lab.checkpoint()
    assert len(lab.segment_files()) == 3
