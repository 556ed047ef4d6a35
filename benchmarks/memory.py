"""What a record in memory costs beyond its own bytes, and what a full topic costs its writers and readers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.contenders import resident_bytes
from benchmarks.figures import Figure, at_most
from benchmarks.local import LocalEngine, pace
from benchmarks.payloads import COMPACT, NAMED, Shape
from benchmarks.session import ROOT, Session
from topics.log import read_page
from topics.log.topic import Topic

AREA = "memory"
_BATCH = 100
_PAGE = 1000
_READ_BYTES = 8 * 1024 * 1024
_SHAPES = {shape.name: shape for shape in (COMPACT, NAMED)}
# In place of a shape: so many topics of one record.
_TOPICS = "topics"
_HOUSEKEEPING_EVERY = 50_000
# Pipeline are so short that the machine is in one mood for all sizes, and so many that no single one matters.
_TURNS = 61
_APPENDS = 2
_DIFFS = 50


class Growth(msgspec.Struct):
    """What the process that held the records says."""

    records: int
    resident: int
    payload: int
    rows: int


def run(session: Session) -> Iterator[Figure]:
    for shape in _SHAPES.values():
        yield from _per_record(session, shape)
    yield _per_topic(session)
    yield from _flatness(session)


# --- bytes per record -----------------------------------------------------------------------------------


def _per_record(session: Session, shape: Shape) -> Iterator[Figure]:
    session.say(f"  resident bytes per hot record, {shape.name}")
    growth = _grown(session.sizes.memory_records, shape.name)
    yield Figure(
        AREA,
        f"resident per hot record beyond data and meta, {shape.name}",
        (growth.resident - growth.payload) / growth.records,
        "bytes",
        bar=at_most(48),
        note=f"of which {(growth.rows - growth.payload) / growth.records:.1f} are the row rendered around it",
    )
    yield Figure(
        AREA,
        f"resident per hot record beyond its rendered row, {shape.name}",
        (growth.resident - growth.rows) / growth.records,
        "bytes",
    )


def _grown(count: int, what: str) -> Growth:
    """In a process of its own: nothing else grows in it."""
    command = [sys.executable, "-m", "benchmarks.memory", str(count), what]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    return msgspec.json.decode(output, type=Growth)


def _grow(count: int, shape: Shape) -> Growth:
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        local = LocalEngine(Path(directory))
        bodies = cycle([shape.body(range(first, first + _BATCH)) for first in range(0, 6400, _BATCH)])
        local.create("warm-up")
        for _ in range(200):
            local.append("warm-up", next(bodies))
        topic = local.create("measured")
        gc.collect()
        before = resident_bytes(os.getpid())
        for _ in range(count // _BATCH):
            local.append("measured", next(bodies))
        gc.collect()
        after = resident_bytes(os.getpid())
        rows = sum(run.hot.size for run in topic.runs if run.hot is not None)
        growth = Growth(topic.live_count, after - before, topic.live_bytes, rows)
        local.close()
    return growth


# --- bytes per topic ------------------------------------------------------------------------------------


def _per_topic(session: Session) -> Figure:
    session.say("  resident bytes per topic")
    count = session.sizes.memory_records // 20
    growth = _grown(count, _TOPICS)
    name = f"resident per topic of one record, {count} topics"
    return Figure(AREA, name, growth.resident / growth.records / 1024, "KiB")


def _grow_topics(count: int) -> Growth:
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        local = LocalEngine(Path(directory))
        body = COMPACT.body(range(1))
        local.create("warm-up")
        local.append("warm-up", body)
        gc.collect()
        before = resident_bytes(os.getpid())
        for number in range(count):
            local.create(f"shop.{number:06}.orders")
            local.append(f"shop.{number:06}.orders", body)
        gc.collect()
        growth = Growth(count, resident_bytes(os.getpid()) - before, 0, 0)
        local.close()
    return growth


# --- the same cost at every size ------------------------------------------------------------------------


def _flatness(session: Session) -> Iterator[Figure]:
    sizes = session.sizes.flat_sizes
    appends: dict[int, list[float]] = {size: [] for size in sizes}
    diffs: dict[int, list[float]] = {size: [] for size in sizes}
    with session.directory() as directory:
        local = LocalEngine(directory, hot_bytes=256 * 1024 * 1024)
        bodies = cycle([COMPACT.body(range(first, first + _BATCH)) for first in range(0, 6400, _BATCH)])
        # The largest first: it would push what the others have written out of memory.
        topics = {size: _filled(session, local, size, bodies) for size in sorted(sizes, reverse=True)}
        session.say("  cost per append and per diff, in turns")
        for turn in range(_TURNS):
            first = turn % len(sizes)
            for size in sizes[first:] + sizes[:first]:
                append, diff = _writer(local, topics[size], bodies), _reader(local, topics[size])
                appends[size].append(pace(append, _APPENDS).cpu_seconds / _BATCH)
                diffs[size].append(pace(diff, _DIFFS).cpu_seconds / _PAGE)
            local.keep_house()
        local.close()
    yield from _flat("append", appends)
    yield from _flat("diff near the head", diffs)


def _filled(session: Session, local: LocalEngine, size: int, bodies: Iterator[bytes]) -> Topic:
    session.say(f"  a topic of {size} records")
    topic = local.create(f"flat-{size}")
    append = _writer(local, topic, bodies)
    while topic.head < size:
        pace(append, min(_HOUSEKEEPING_EVERY, size - topic.head) // _BATCH)
        local.keep_house()
    return topic


def _writer(local: LocalEngine, topic: Topic, bodies: Iterator[bytes]) -> Callable[[], object]:
    return lambda: local.append(topic.name, next(bodies))


def _reader(local: LocalEngine, topic: Topic) -> Callable[[], object]:
    oldest = max(topic.head - 5 * _PAGE, 0)
    starts = cycle(range(oldest, max(topic.head - _PAGE, 1), 617))
    return lambda: read_page(local.engine, topic, next(starts), _PAGE, _READ_BYTES)


def _flat(what: str, turns: dict[int, list[float]]) -> Iterator[Figure]:
    costs = {size: median(seconds) for size, seconds in turns.items()}
    for size, seconds in costs.items():
        yield Figure(AREA, f"{what}, {size:.0e} records in the topic", seconds * 1e9, "ns per record")
    yield Figure(
        AREA,
        f"{what}: largest deviation from the middle cost",
        max(abs(cost / median(costs.values()) - 1) for cost in costs.values()) * 100,
        "%",
        bar=at_most(20),
    )


if __name__ == "__main__":
    asked, kind = int(sys.argv[1]), sys.argv[2]
    grown = _grow_topics(asked) if kind == _TOPICS else _grow(asked, _SHAPES[kind])
    print(msgspec.json.encode(grown).decode())
