"""Charts for people, made of finished runs: `python -m benchmarks.chart run.json …`.

    peers.svg   what one machine did in one run: what a record costs each server, ours and peers
    sizes.svg   what a record costs against how many there are, on logarithmic axes

The colours are those of a chart that is read on paper as well as on a dark page.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

import msgspec

from benchmarks.figures import Figure, number
from benchmarks.report import Report

FOLDER = Path(__file__).parent
_WIDTH, _BAR, _LEFT, _TOP = 760, 18, 260, 64
# So many characters of the small print fit into the width.
_LINE = 125
_OURS, _PEER, _INK = "#1f77b4", "#b0b7c3", "#444"
_SIZE = re.compile(r"(.+), (1e\+\d\d) records in the topic")


def _svg(height: int, title: str, subtitle: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
    )
    said = [_text(12, 38 + 13 * at, line, size=10) for at, line in enumerate(wrap(subtitle, _LINE))]
    lines = [head, _text(12, 22, title, size=15), *said, *parts, "</svg>"]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{_INK}"'
    return f"<text {place}>{escape(words)}</text>"


def _bar(y: float, width: float, colour: str) -> str:
    return f'<rect x="{_LEFT}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{_BAR - 4}" fill="{colour}"/>'


def peers(figures: Sequence[Figure], subtitle: str) -> str:
    """One group of bars for each kind of work: processor time of the servers, which hardly hangs on others.

    Where that is not known, because the peer runs elsewhere, the time by the clock.
    """
    groups: dict[str, dict[str, float]] = {}
    for figure in figures:
        cost = figure.cpu_ratio or figure.ratio
        if figure.peer is not None and cost is not None:
            groups.setdefault(figure.name.partition(", against ")[0], {"topics": 1.0})[figure.peer] = cost
    parts: list[str] = []
    y = float(_TOP)
    for name, costs in groups.items():
        parts.append(_text(12, y + 14, name))
        y += 22
        longest = max(costs.values())
        for label, cost in costs.items():
            width = (_WIDTH - _LEFT - 70) * cost / longest
            parts += [_text(_LEFT - 8, y + 11, label, anchor="end")]
            parts += [_bar(y, width, _OURS if label == "topics" else _PEER)]
            parts += [_text(_LEFT + width + 6, y + 11, number(cost))]
            y += _BAR
        y += 12
    return _svg(int(y) + 8, "Processor time to write a record, ours = 1; shorter is better", subtitle, parts)


def sizes(figures: Sequence[Figure], subtitle: str) -> str:
    """A line for each kind of work that was measured at several sizes."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for figure in figures:
        found = _SIZE.fullmatch(figure.name)
        if found is not None:
            lines.setdefault(found[1], []).append((float(found[2]), figure.value))
    right, bottom, top = _WIDTH - 170, 330, _TOP + 10
    low, high = 4.0, 8.0
    costs = [cost for line in lines.values() for _, cost in line]
    least, most = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))

    def x(size: float) -> float:
        return 70 + (math.log10(size) - low) / (high - low) * (right - 70)

    def y(cost: float) -> float:
        return bottom - (math.log10(cost) - least) / max(most - least, 1) * (bottom - top)

    parts = [
        _text(x(10**power), bottom + 18, f"10^{power} records", anchor="middle")
        for power in range(int(low), int(high) + 1)
    ]
    for power in range(least, most + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="70" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(_text(62, at + 4, f"{number(10.0**power)} ns", anchor="end"))
    for index, (name, points) in enumerate(lines.items()):
        colour = (_OURS, "#d62728", "#2ca02c", "#9467bd")[index % 4]
        path = " ".join(f"{x(size):.1f},{y(cost):.1f}" for size, cost in sorted(points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        last = max(points)
        parts.append(_text(x(last[0]) + 8, y(last[1]) + 4, name))
    return _svg(bottom + 34, "Cost of a record against the size of its topic", subtitle, parts)


def draw(reports: Sequence[Report], folder: Path = FOLDER) -> list[Path]:
    """Those of the charts for which there are figures; each says on what machine, and how busy it was."""
    drawn: list[Path] = []
    for report in reports:
        for name, area, chart in (("peers.svg", "peers", peers), ("sizes.svg", "memory", sizes)):
            figures = [figure for figure in report.figures if figure.area == area]
            if figures:
                (folder / name).write_text(chart(figures, f"{report.command}: {report.machine}"))
                drawn.append(folder / name)
    return drawn


if __name__ == "__main__":
    found = [msgspec.json.decode(Path(name).read_bytes(), type=Report) for name in sys.argv[1:]]
    print(*draw(found), sep="\n")
