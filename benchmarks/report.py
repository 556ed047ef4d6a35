"""A finished run as a file, and as the table in the README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, cells, headings
from benchmarks.session import Machine

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_HEADING = "### "


class Report(msgspec.Struct):
    command: str
    machine: Machine
    figures: list[Figure]
    # Areas that could not be measured, and why.
    failures: dict[str, str]
    # What areas did without, and why.
    left_out: dict[str, list[str]] = {}

    @property
    def areas(self) -> list[str]:
        return list(dict.fromkeys([*(figure.area for figure in self.figures), *self.failures]))


def save(report: Report, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def write_readme(report: Report, readme: Path = README) -> None:
    """Put the figures between the two marks, in place of older ones of the same areas."""
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the marks between which the figures go")
    sections = _sections(old) | {area: _section(report, area) for area in report.areas}
    readme.write_text("\n".join([f"{before}{BEGIN}", *sections.values(), f"{END}{after}"]))


def _sections(text: str) -> dict[str, str]:
    """What is there already, by area."""
    parts = text.split(_HEADING)[1:]
    return {part.partition("\n")[0]: f"{_HEADING}{part.rstrip()}\n" for part in parts}


def _section(report: Report, area: str) -> str:
    lines = [f"{_HEADING}{area}", "", f"`{report.command}` on {report.machine}.", ""]
    figures = [figure for figure in report.figures if figure.area == area]
    if figures:
        names = headings(figures)
        lines += [
            _row(names),
            _row(["---"] * len(names)),
            *[_row(cells(figure, names)) for figure in figures],
        ]
    lines += [f"\n{figure.name}: {figure.note}." for figure in figures if figure.note]
    if area in report.left_out:
        lines.append(f"\nLeft out: {'; '.join(report.left_out[area])}.")
    if area in report.failures:
        lines.append(f"\n{area} could not be measured: {report.failures[area]}.")
    return "\n".join(lines) + "\n"


def _row(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"
