"""Starting: replay of a journal that no snapshot covers, a server with nothing to recover, the command."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.contenders import Topics, cpu_of_children, cpu_seconds, resident_bytes
from benchmarks.figures import Bar, Figure, at_least, at_most, number
from benchmarks.local import LocalEngine, Pace, pace
from benchmarks.payloads import COMPACT, NAMED, Shape
from benchmarks.session import Session
from topics.core.clock import SystemClock
from topics.core.settings import Settings
from topics.log.engine import Engine
from topics.log.recover.recovery import Recovery
from topics.storage.filesystem import Filesystem

AREA = "recovery"


def run(session: Session) -> Iterator[Figure]:
    yield _replay(session, COMPACT, 100, at_least(1e6))
    yield _replay(session, COMPACT, 1, at_least(1e6))
    yield _replay(session, NAMED, 100, None)
    yield _empty_start(session)
    yield _help(session)


def _replay(session: Session, shape: Shape, batch: int, bar: Bar | None) -> Figure:
    name = f"journal replay, written in batches of {batch}, {shape.name}"
    count = max(session.sizes.recovery_records // (10 if batch == 1 else 1), 1)
    session.say(f"  {name}: {count} records")
    rates: list[float] = []
    of_cpu: list[float] = []
    with session.directory() as directory:
        written = directory / "written"
        _write_journal(written, shape, count, batch)
        for attempt in range(min(session.sizes.rounds, 3)):
            # Recovery begins a new journal file, so each one gets a copy of its own.
            copy = directory / f"copy-{attempt}"
            shutil.copytree(written, copy)
            spent = _recover(copy, count)
            rates.append(count / spent.seconds)
            of_cpu.append(count / spent.cpu_seconds)
            shutil.rmtree(copy)
    note = f"{number(median(of_cpu))} per second of processor time"
    return Figure.of_rounds(AREA, name, rates, "records/s", bar=bar, note=note)


def _write_journal(directory: Path, shape: Shape, count: int, batch: int) -> None:
    local = LocalEngine(directory)
    local.create("journal")
    bodies = [shape.body(range(first, first + batch)) for first in range(0, 64 * batch, batch)]
    for index in range(count // batch):
        local.append("journal", bodies[index % len(bodies)])
        if index % 1000 == 0:
            local.engine.rotate_if_full()
    # No checkpoint: all of it has to be replayed.
    local.close()


def _recover(directory: Path, count: int) -> Pace:
    engine = Engine(Settings(data_dir=str(directory)), Filesystem(), SystemClock())
    spent = pace(Recovery(engine).run, 1)
    found = engine.require("journal").live_count
    assert found == count, f"recovered {found} of {count} records"
    engine.close(clean=False)
    return spent


def _empty_start(session: Session) -> Figure:
    session.say("  start of an empty server")
    seconds: list[float] = []
    cpu: list[float] = []
    resident: list[float] = []
    with session.directory() as directory:
        for index in range(session.sizes.starts):
            started = time.perf_counter()
            server = Topics(directory / str(index))
            seconds.append(time.perf_counter() - started)
            cpu.append(cpu_seconds(server.pid))
            resident.append(resident_bytes(server.pid) / 2**20)
            server.close()
    return Figure.of_rounds(
        AREA,
        "start of an empty server, until it says ready",
        seconds,
        "s",
        bar=at_most(0.3),
        note=f"{median(cpu):.2f} s of processor time, {median(resident):.0f} MiB resident",
    )


def _help(session: Session) -> Figure:
    session.say("  topics --help")
    seconds: list[float] = []
    spent = cpu_of_children()
    for _ in range(session.sizes.starts):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "topics", "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    cpu = (cpu_of_children() - spent) / session.sizes.starts
    return Figure.of_rounds(
        AREA,
        "`topics --help`",
        seconds,
        "s",
        bar=at_most(0.3),
        note=f"{cpu:.2f} s of processor time",
    )
