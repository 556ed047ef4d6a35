"""Contenders measured in turns, so that whatever else the machine does happens to all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.contenders import cpu_seconds
from benchmarks.figures import Bar, Figure
from benchmarks.session import Session

_QUIET_STEP_S = 0.1
_QUIET_SHARE = 0.15


@dataclass
class Contender:
    """`run` works for about so many seconds and says how many records it moved in how many seconds."""

    label: str
    run: Callable[[float], tuple[int, float]]
    # The process that does the work, when it is not this one.
    pid: int | None = None
    before: Callable[[], None] = lambda: None
    rates: list[float] = field(default_factory=list)
    cpu_per_record: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.rates), max(self.rates)

    def round(self, seconds: float, settle_s: float) -> None:
        self.before()
        cpu = 0.0 if self.pid is None else cpu_seconds(self.pid)
        count, elapsed = self.run(seconds)
        self.rates.append(count / elapsed)
        if self.pid is not None and count:
            self.cpu_per_record.append((cpu_seconds(self.pid) - cpu) / count)
            settle(self.pid, settle_s)


def settle(pid: int, within_s: float) -> None:
    """Wait until a server is quiet and what it has written is on the disk.

    Otherwise the system would write it during the round of the other.
    """
    wait_until_quiet(pid, within_s)
    if within_s:
        os.sync()


def wait_until_quiet(pid: int, within_s: float) -> None:
    """Wait until a server has done what it does in the background."""
    deadline = time.monotonic() + within_s
    used = cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_STEP_S)
        before, used = used, cpu_seconds(pid)
        if used - before < _QUIET_STEP_S * _QUIET_SHARE and not _is_runnable(pid):
            break


def _is_runnable(pid: int) -> bool:
    """Whether a thread of a process runs or waits for a processor, which can be long on a busy machine."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return any(stat.read_text().rpartition(")")[2].split()[0] == "R" for stat in stats)


def in_turns(session: Session, contenders: Sequence[Contender], warm_up: int = 1) -> None:
    """Short rounds to warm up, which do not count, one each as a rule; then A, B, A, B, …"""
    sizes = session.sizes
    for _ in range(warm_up):
        for contender in contenders:
            contender.round(sizes.round_s / 4, sizes.settle_s)
            contender.rates.clear()
            contender.cpu_per_record.clear()
    for _ in range(sizes.rounds):
        for contender in contenders:
            contender.round(sizes.round_s, sizes.settle_s)


def compare(
    session: Session,
    area: str,
    name: str,
    ours: Contender,
    peer: Contender,
    bar: Bar | None = None,
    note: str = "",
    warm_up: int = 1,
) -> Figure:
    in_turns(session, (ours, peer), warm_up)
    cpu_ratio = None
    if ours.cpu_per_record and peer.cpu_per_record and median(ours.cpu_per_record):
        cpu_ratio = median(peer.cpu_per_record) / median(ours.cpu_per_record)
    return Figure(
        area,
        name,
        ours.rate,
        "records/s",
        peer=peer.label,
        peer_value=peer.rate,
        bar=bar,
        cpu_ratio=cpu_ratio,
        spread=ours.spread,
        peer_spread=peer.spread,
        note=note,
    )
