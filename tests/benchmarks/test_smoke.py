"""The benchmarks still run: every area once, with tiny sizes. The values are not judged."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from xml.etree import ElementTree

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.areas import AREAS
from benchmarks.chart import draw
from benchmarks.contenders import PYTHON_CODEC, cpu_seconds, wake_ups
from benchmarks.figures import Figure, at_most, number, table, times_peer
from benchmarks.generator import WrongReply, verify_diff, verify_range
from benchmarks.payloads import compact, payload
from benchmarks.report import BEGIN, END, Report, write_readme
from benchmarks.session import ROOT, TINY, Machine, Session, machine


@pytest.mark.timeout(300)  # one of them starts three JVMs
@pytest.mark.parametrize("area", [area for area in AREAS if area != "instructions"])
def test_area_yields_figures(area: str) -> None:
    figures = list(AREAS[area](Session(TINY, lambda _: None)))
    assert figures
    for figure in figures:
        assert figure.area == area
        assert figure.value > 0 or figure.unit in ("%", "bytes"), figure
        assert figure.peer is None or figure.peer_value, figure


def test_command_lists_areas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(AREAS)
    assert "scale (only when named)" in listed


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["--json", "/no/such/dir/x.json"],
        ["shapes", "--only", "nonsense"],
        ["shapes", "--server", "/no/such/checkout"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("benchmarks: ")
    assert told.err.count("\n") == 1


def test_a_run_prints_the_machine_the_figures_and_what_was_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def area(session: Session) -> Iterator[Figure]:
        session.leave_out("watch", "A (not installed)")
        yield Figure("watch", "what", 1.0, "s")

    assert main(["watch", "--quick", "--json", str(tmp_path / "r.json")], {"watch": area}) == 0
    told = capsys.readouterr()
    assert told.err.startswith(f"Python {machine().python}\nwatch:\n")
    head, _, figures = told.out.partition("\n\n")
    assert head.startswith("python -m benchmarks watch --quick on ")
    assert machine().python in head
    assert "-- watch" in figures
    assert figures.endswith("\nwatch: left out: A (not installed)\n")
    made = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Report)
    assert made.left_out == {"watch": ["A (not installed)"]}
    # The file is read by others: it names no path of this machine.
    assert made.command == "python -m benchmarks watch --quick"


def test_figures_of_the_codec_in_python_have_their_own_heading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def area(session: Session) -> Iterator[Figure]:
        yield Figure("peers", "what", 1.0, "records/s")
        raise RuntimeError("it broke")

    for name, value in PYTHON_CODEC.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "r.json"
    assert main(["peers", "--python-codec", "--json", str(path)], {"peers": area}) == 1
    made = msgspec.json.decode(path.read_bytes(), type=Report)
    assert made.areas == ["peers with the codec in Python"]
    assert made.failures == {"peers with the codec in Python": "it broke"}


def test_cpu_seconds_include_children_while_they_run_and_after_they_end() -> None:
    work = "import time; [None for _ in iter(lambda: time.process_time() > 0.2, True)]"
    code = (
        f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {work + '; input()'!r}], "
        "stdin=subprocess.PIPE); input(); child.communicate(b'\\n'); print(flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE)
    try:
        deadline = time.monotonic() + 20
        while cpu_seconds(parent.pid) < 0.2 and time.monotonic() < deadline:
            time.sleep(0.02)
        running = cpu_seconds(parent.pid)
        assert running >= 0.2
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        parent.stdout.readline()
        # For processes that have ended, the system counts hundredths of a second.
        ended, woken = cpu_seconds(parent.pid), wake_ups(parent.pid)
        assert ended > running - 0.03
        time.sleep(0.1)
        assert cpu_seconds(parent.pid) < ended + 0.01
        assert wake_ups(parent.pid) <= woken + 1
    finally:
        parent.communicate(b"\n")


# --- figures and reports --------------------------------------------------------------------------------


def test_bars() -> None:
    figure = Figure("a", "b", 150.0, "records/s", peer="p", peer_value=100.0, bar=times_peer(1.5))
    assert figure.reached is True
    figure.peer_value = 101.0
    assert figure.reached is False
    assert Figure("a", "b", 48.0, "bytes", bar=at_most(48)).reached is True
    missed = Figure("area", "b", 48.1, "bytes", bar=at_most(48), note="because")
    assert missed.reached is False
    assert Figure("a", "b", 48.1, "bytes").reached is None
    text = table([missed])
    assert all(word in text for word in ("-- area", "≤ 48", "NO", "because"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.112, "0.112"), (999.0, "999"), (999.9, "1 k"), (33_300, "33.3 k"), (1.5e6, "1.5 M")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def report() -> Report:
    machine = Machine(2, "chip & co", "Linux", "3.11", "7.0", "2030-01-01", 0.5, 0.7)
    figures = [
        Figure("peers", f"single appends, against {peer}", 100.0, "records/s", peer=peer, peer_value=value)
        for peer, value in (("A <1>", 50.0), ("B", 200.0))
    ]
    figures[1].note = "a note"
    return Report("python -m benchmarks peers", machine, figures, {"other": "it broke"}, {"peers": ["C"]})


def test_figures_replace_those_of_their_area_in_the_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{BEGIN}\n### first\n\n| 1 |\n\n### peers\n\n| 2 |\n{END}\nbelow\n")
    write_readme(report(), readme)
    write_readme(report(), readme)
    text = readme.read_text()
    assert text.startswith(f"above\n{BEGIN}\n")
    assert text.endswith(f"{END}\nbelow\n")
    assert re.findall(r"^### (\w+)", text, re.M) == ["first", "peers", "other"]
    assert "| 1 |" in text
    assert "| 2 |" not in text
    assert text.count("| single appends, against B | 100 records/s | 200 (B) | 0.50 |") == 1
    assert "against B: a note." in text
    assert "Left out: C." in text
    assert "other could not be measured: it broke." in text


def test_a_readme_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("text")
    with pytest.raises(ValueError, match="marks"):
        write_readme(report(), readme)
    assert readme.read_text() == "text"


def test_recorded_figures_name_no_path_of_a_machine() -> None:
    for path in (ROOT / "benchmarks" / name for name in ("README.md", "instructions.json")):
        assert not re.search(r"(?<![\w.])/(tmp|root|home|work|var)/", path.read_text()), path


def test_charts(tmp_path: Path) -> None:
    sizes = [
        Figure("memory", f"append, 1e+0{power} records in the topic", 900.0, "ns per record")
        for power in (4, 5, 7)
    ]
    peers = report()
    drawn = draw([peers, Report("python -m benchmarks memory", peers.machine, sizes, {})], tmp_path)
    assert [path.name for path in drawn] == ["peers.svg", "sizes.svg"]
    bars, lines = (list(ElementTree.parse(path).iter()) for path in drawn)
    texts = [element.text for element in bars if element.tag.endswith("text")]
    assert texts[-6:] == ["topics", "1", "A <1>", "2", "B", "0.5"]
    [line] = [element for element in lines if element.tag.endswith("polyline")]
    assert len(line.attrib["points"].split()) == 3


# --- verification of replies ----------------------------------------------------------------------------


def diff_reply(numbers: list[int], seqs: list[int]) -> bytes:
    records = [{"$seq": seq, "$ts": 0, "data": payload(n)} for n, seq in zip(numbers, seqs, strict=True)]
    return b"HTTP/1.1 200 OK\r\n\r\n" + compact({"records": records, "next_from_seq": seqs[-1]})


def test_a_wrong_record_is_noticed() -> None:
    assert verify_diff(diff_reply([4, 5, 6], [4, 5, 6]), 0) == 3
    with pytest.raises(WrongReply):
        verify_diff(diff_reply([4, 6, 6], [4, 5, 6]), 0)


def range_reply(numbers: list[int], count: int) -> bytes:
    reply = b"*%d\r\n" % count
    for n in numbers:
        text = compact(payload(n))
        reply += b"*2\r\n$3\r\n1-%d\r\n*2\r\n$4\r\ndata\r\n$%d\r\n%b\r\n" % (n % 10, len(text), text)
    return reply


def test_a_wrong_entry_is_noticed() -> None:
    assert verify_range(range_reply([4, 5, 6], 3), 8) == 3
    for numbers in ([4, 6], [4, 6, 5]):
        with pytest.raises(WrongReply):
            verify_range(range_reply(numbers, 3), 8)
