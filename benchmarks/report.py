"""A finished run as a file, and as the table in the README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.figures import HEADINGS, Figure, cells
from benchmarks.session import Machine

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class Report(msgspec.Struct):
    command: str
    machine: Machine
    figures: list[Figure]
    # Areas that could not be measured, and why.
    failures: dict[str, str]


def save(report: Report, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def write_readme(report: Report, readme: Path = README) -> None:
    """Put the figures between the two marks; everything else is written by people."""
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the marks between which the figures go")
    readme.write_text(f"{before}{BEGIN}\n{_markdown(report)}\n{END}{after}")


def _markdown(report: Report) -> str:
    lines = [f"`{report.command}` on {report.machine}.", ""]
    for area in dict.fromkeys(figure.area for figure in report.figures):
        figures = [figure for figure in report.figures if figure.area == area]
        lines += [f"### {area}", "", _row(HEADINGS), _row(["---"] * len(HEADINGS))]
        lines += [_row(cells(figure)) for figure in figures]
        lines += [f"\n{figure.name}: {figure.note}." for figure in figures if figure.note]
        lines.append("")
    lines += [f"{area} could not be measured: {reason}." for area, reason in report.failures.items()]
    return "\n".join(lines).rstrip()


def _row(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"
