"""What a benchmark reports: a figure, the peer's figure, and the bar it has to reach."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec

from topics import codec


class Bar(msgspec.Struct, frozen=True):
    """What has to be reached, by the figure itself or by its ratio to the peer's."""

    limit: float
    at_most: bool = False
    of_ratio: bool = False

    def reached_by(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {number(self.limit)}{' ×' if self.of_ratio else ''}"


def at_least(limit: float) -> Bar:
    return Bar(limit)


def at_most(limit: float) -> Bar:
    return Bar(limit, at_most=True)


def times_peer(limit: float, *, python_codec: float | None = None) -> Bar:
    """A bar on the ratio; `python_codec` is the limit for servers with the codec in Python, if it differs."""
    if codec.NAME == "python" and python_codec is not None:
        limit = python_codec
    return Bar(limit, of_ratio=True)


class Figure(msgspec.Struct):
    area: str
    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    bar: Bar | None = None
    # The server's processor time per record, the peer's ÷ ours: a ratio that a busy machine hardly moves.
    cpu_ratio: float | None = None
    # Lowest and highest of the rounds behind `value` (and `peer_value`).
    spread: tuple[float, float] | None = None
    peer_spread: tuple[float, float] | None = None
    note: str = ""
    # The median of the ratios of rounds, where it is not that of the medians.
    ratio_of_rounds: float | None = None
    # Further columns, by heading.
    also: dict[str, float] = {}

    @classmethod
    def of_rounds(cls, area: str, name: str, values: Sequence[float], unit: str, **more: Any) -> Figure:
        """A figure from the values of several rounds."""
        return cls(area, name, median(values), unit, spread=(min(values), max(values)), **more)

    @property
    def ratio(self) -> float | None:
        if self.ratio_of_rounds is not None:
            return self.ratio_of_rounds
        return self.value / self.peer_value if self.peer_value else None

    @property
    def reached(self) -> bool | None:
        if self.bar is None:
            return None
        judged = self.ratio if self.bar.of_ratio else self.value
        return None if judged is None else self.bar.reached_by(judged)


def number(value: float) -> str:
    """Three significant digits, in thousands or millions where that reads better."""
    for size, suffix in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def per_cpu_second(count: float) -> str:
    """A note for rates without a peer: what a busy machine hardly moves."""
    return f"{number(count)} for each second of the server's processor time"


HEADINGS = ("what", "ours", "peer", "ratio", "by CPU", "bar", "reached")
_REACHED = {True: "yes", False: "NO", None: ""}


def headings(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the columns of every table, and the columns of these figures."""
    return (*HEADINGS, *dict.fromkeys(name for figure in figures for name in figure.also))


def cells(figure: Figure, names: Sequence[str] = HEADINGS) -> tuple[str, ...]:
    """A line of the table, as `names` names its columns."""
    ratio, cpu = figure.ratio, figure.cpu_ratio
    return (
        figure.name,
        f"{number(figure.value)} {figure.unit}",
        "" if figure.peer_value is None else f"{number(figure.peer_value)} ({figure.peer})",
        "" if ratio is None else f"{ratio:.2f}",
        "" if cpu is None else f"{cpu:.2f}",
        "" if figure.bar is None else str(figure.bar),
        _REACHED[figure.reached],
        *(number(figure.also[name]) if name in figure.also else "" for name in names[len(HEADINGS) :]),
    )


def table(figures: Sequence[Figure]) -> str:
    """Columns aligned for a terminal, a heading per area."""
    names = headings(figures)
    rows = [cells(figure, names) for figure in figures]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [_aligned(names, widths)]
    area = None
    for figure, row in zip(figures, rows, strict=True):
        if figure.area != area:
            area = figure.area
            lines.append(f"-- {area}")
        lines.append(_aligned(row, widths))
        if figure.note:
            lines.append(f"     {figure.note}")
    return "\n".join(lines)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
