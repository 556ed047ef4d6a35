"""The engine alone: JSON in, journal written, rows out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from statistics import median

from benchmarks.figures import Bar, Figure, at_least, number
from benchmarks.local import LocalEngine, Pace, pace
from benchmarks.payloads import COMPACT, NAMED, SPACED, TAGS, Shape, node, tag
from benchmarks.session import Session
from topics.log import preview_delete, read_page
from topics.log.read.filter import TagMatch
from topics.log.topic import Topic

AREA = "inprocess"
_PAGE = 1000
_READ_BYTES = 8 * 1024 * 1024
_BATCHES: tuple[tuple[int, Bar | None], ...] = ((1, None), (100, at_least(1.2e6)), (1000, at_least(1.2e6)))


def run(session: Session) -> Iterator[Figure]:
    yield from _appends(session)
    yield from _reads(session)
    yield from _tags(session)


def _appends(session: Session) -> Iterator[Figure]:
    with session.directory() as directory:
        local = LocalEngine(directory, hot_bytes=64 * 1024 * 1024)
        for batch, bar in _BATCHES:
            yield _append(session, local, COMPACT, batch, bar)
        for shape in (SPACED, NAMED):
            yield _append(session, local, shape, 100, None)
        local.close()


def _append(session: Session, local: LocalEngine, shape: Shape, batch: int, bar: Bar | None) -> Figure:
    name = f"append, batches of {batch}, journal written, {shape.name}"
    session.say(f"  {name}")
    topic = f"append-{batch}-{shape.name.replace(' ', '-')}"
    local.create(topic)
    bodies = cycle([shape.body(range(first, first + batch)) for first in range(0, 64 * batch, batch)])
    calls = max(session.sizes.local_records // (batch if batch > 1 else 10), 1)

    def measure() -> Pace:
        local.keep_house()
        return pace(lambda: local.append(topic, next(bodies)), calls)

    return _median(session, name, measure, batch, bar)


def _median(
    session: Session, name: str, measure: Callable[[], Pace], records: int, bar: Bar | None, note: str = ""
) -> Figure:
    """Records per second, of rounds that each tell how long a call with so many records took."""
    measure()
    paces = [measure() for _ in range(session.sizes.rounds)]
    rates = [records / each.seconds for each in paces]
    of_cpu = number(records / median(each.cpu_seconds for each in paces))
    note = f"{of_cpu} per second of processor time" + (f"; {note}" if note else "")
    return Figure.of_rounds(AREA, name, rates, "records/s", bar=bar, note=note)


def _reads(session: Session) -> Iterator[Figure]:
    count = session.sizes.local_records
    with session.directory() as directory:
        local = LocalEngine(directory)
        plain, named = local.create("plain"), local.create("named")
        session.say(f"  filling two topics with {count} records")
        local.fill("plain", COMPACT, count)
        local.fill("named", NAMED, count)
        yield _read(session, local, plain, None, "diff of 1000, warm, no filters", at_least(10e6))
        local.delete_tagged(named, [tag(n) for n in range(0, TAGS, 10)])
        yield _read(
            session,
            local,
            named,
            frozenset((node(0),)),
            "diff of 1000, warm, 10 % deleted and a node filter",
            at_least(2e6),
            note="records returned; those passed over are not counted",
        )
        local.close()


def _read(
    session: Session,
    local: LocalEngine,
    topic: Topic,
    nodes: frozenset[str] | None,
    name: str,
    bar: Bar,
    note: str = "",
) -> Figure:
    session.say(f"  {name}")
    last_start = max(topic.head - 2 * _PAGE, 0)
    starts = cycle([(page * 7919) % (last_start + 1) for page in range(64)])
    read = partial(read_page, local.engine)
    calls = max(session.sizes.local_records // 100, 1)

    def measure() -> Pace:
        return pace(lambda: read(topic, next(starts), _PAGE, _READ_BYTES, nodes=nodes), calls)

    assert read(topic, 0, _PAGE, _READ_BYTES, nodes=nodes).count == _PAGE
    return _median(session, name, measure, _PAGE, bar, note)


def _tags(session: Session) -> Iterator[Figure]:
    """A hundred thousand records with ten thousand tags, a hundred of which begin alike."""
    session.say("  deletions by tag")
    with session.directory() as directory:
        local = LocalEngine(directory)
        topic = local.create("tagged")
        for first in range(1, 100_001, 1000):
            records = [{"data": 1, "tag": f"order:{n % 10_000:05d}"} for n in range(first, first + 1000)]
            local.append("tagged", json.dumps({"records": records}).encode())
        exact = cycle([TagMatch(f"order:{number:05d}", False) for number in range(0, 10_000, 37)])
        prefixes = cycle([TagMatch(f"order:{number:03d}", True) for number in range(100)])
        preview = partial(preview_delete, local.engine, topic, None)
        assert preview(TagMatch("order:00042", False)).deleted == 10
        assert preview(TagMatch("order:042", True)).deleted == 1000
        for name, matches in (("one tag, 10 found", exact), ("tags with a prefix, 1000 found", prefixes)):
            work = partial(_call_with_next, preview, matches)
            micros = [pace(work, 200).seconds * 1e6 for _ in range(session.sizes.rounds)]
            spread = min(micros), max(micros)
            yield Figure(AREA, f"dry run of a deletion by {name}", median(micros), "µs", spread=spread)
        local.close()


def _call_with_next(work: Callable[[TagMatch], object], matches: Iterator[TagMatch]) -> object:
    return work(next(matches))
