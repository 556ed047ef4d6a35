"""Charts are made of the figures of a run, and are well-formed."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import FOLDER, draw
from benchmarks.figures import Figure
from benchmarks.report import Report
from benchmarks.session import FULL, Machine

_MACHINE = Machine(2, "some & processor", "Linux", "3.11", "7", "2026-01-01", 1.0, 2.0)


def _texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("text")]


def test_a_chart_has_a_bar_for_us_and_for_every_peer(tmp_path: Path) -> None:
    figures = [
        Figure("peers", f"single appends, against {peer}", 100.0, "records/s", peer=peer, peer_value=value)
        for peer, value in (("A <1>", 50.0), ("B", 200.0))
    ]
    figures[1].cpu_ratio = 3.0
    [path] = draw([Report("python -m benchmarks peers", _MACHINE, figures, {})], tmp_path)
    assert path.name == "peers.svg"
    texts = _texts(path)
    assert texts[-6:] == ["topics", "1", "A <1>", "2", "B", "3"]
    # The small print takes as many lines as it needs.
    small_print = texts[1:-7]
    assert "load average 1.0 before and 2.0 after" in " ".join(small_print)
    assert max(map(len, small_print)) <= 125


def test_cost_is_drawn_against_size(tmp_path: Path) -> None:
    names = [f"append, 1e+0{power} records in the topic" for power in (4, 5, 7)]
    figures = [Figure("memory", name, 900.0, "ns per record") for name in names]
    [path] = draw([Report("python -m benchmarks memory", _MACHINE, figures, {})], tmp_path)
    [line] = [e for e in ElementTree.parse(path).iter() if e.tag.endswith("polyline")]
    assert len(line.attrib["points"].split()) == 3
    assert "append" in _texts(path)
    assert "10^8 records" in _texts(path)


def test_a_full_run_fills_the_axis_of_sizes(tmp_path: Path) -> None:
    names = [f"append, {size:.0e} records in the topic" for size in FULL.flat_sizes]
    figures = [Figure("memory", name, 900.0, "ns per record") for name in names]
    [path] = draw([Report("python -m benchmarks memory", _MACHINE, figures, {})], tmp_path)
    elements = list(ElementTree.parse(path).iter())
    [line] = [e.attrib["points"].split() for e in elements if e.tag.endswith("polyline")]
    ends = [next(e.attrib["x"] for e in elements if e.text == f"10^{power} records") for power in (4, 8)]
    assert [line[at].partition(",")[0] for at in (0, -1)] == ends


@pytest.mark.parametrize("name", ["peers.svg", "sizes.svg"])
def test_the_small_print_of_our_charts_is_not_cut_off(name: str) -> None:
    assert max(map(len, _texts(FOLDER / name))) <= 125


def test_without_figures_there_is_no_chart(tmp_path: Path) -> None:
    assert draw([Report("python -m benchmarks watch", _MACHINE, [], {})], tmp_path) == []
