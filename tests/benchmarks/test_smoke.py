"""The benchmarks still run: every area once, with tiny sizes. What they measure is not judged."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest

from benchmarks import __main__ as bench
from benchmarks.__main__ import main
from benchmarks.areas import AREAS
from benchmarks.contenders import PYTHON_CODEC, cpu_seconds, wake_ups
from benchmarks.figures import Figure, at_most, number, table, times_peer
from benchmarks.generator import Job, Request, WrongReply, verify_diff, verify_range
from benchmarks.payloads import COMPACT, NAMED, PAYLOAD_BYTES, SPACED, compact, payload
from benchmarks.report import BEGIN, END, Report, save, write_readme
from benchmarks.session import ROOT, TINY, Machine, Session, machine
from tests.support.process import ServerProcess
from topics import codec


def silent(_: str) -> None:
    return None


@pytest.mark.timeout(300)  # one of them starts three JVMs
@pytest.mark.parametrize("area", [area for area in AREAS if area != "instructions"])
def test_area_yields_figures(area: str) -> None:
    figures = list(AREAS[area](Session(TINY, silent)))
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


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["--json", "/no/such/dir/x.json"]])
def test_bad_usage_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("benchmarks: ")
    assert done.stderr.count("\n") == 1


def test_a_run_says_on_what_it_runs_before_its_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "AREAS", {"area": lambda _: iter([Figure("area", "what", 1.0, "s")])})
    assert main(["area", "--quick"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(f"Python {machine().python}\narea:\n")
    head, _, figures = told.out.partition("\n\n")
    assert head.startswith("python -m benchmarks area --quick on ")
    assert machine().python in head
    assert "-- area" in figures


# --- with the codec in Python ---------------------------------------------------------------------------


def test_command_starts_again_with_the_codec_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(Exception):
        """Raised where the process would be replaced."""

    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        raise Replaced(arguments[1:], environment[codec.SWITCH])

    monkeypatch.delenv(codec.SWITCH, raising=False)
    monkeypatch.setattr(os, "execve", execve)
    asked = ["peers", "--python-codec"]
    with pytest.raises(Replaced) as caught:
        main(asked)
    assert caught.value.args == (["-m", "benchmarks", *asked], "python")


def test_figures_of_the_codec_in_python_have_their_own_heading_and_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def area(session: Session) -> Iterator[Figure]:
        yield Figure("peers", "what", 1.0, "records/s")
        raise RuntimeError("it broke")

    for name, value in PYTHON_CODEC.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bench, "AREAS", {"peers": area})
    assert main(["peers", "--quick", "--python-codec", "--json", str(tmp_path / "r.json")]) == 1
    made = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Report)
    assert made.command == "python -m benchmarks peers --quick --python-codec"
    assert made.areas == ["peers with the codec in Python"]
    assert made.failures == {"peers with the codec in Python": "it broke"}


@pytest.mark.parametrize("switch", ["python", None])
def test_servers_that_are_started_use_the_same_codec(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str | None
) -> None:
    monkeypatch.setenv("TOPICS_READ_ONLY", "of this machine, and nothing to a server of ours")
    monkeypatch.delenv(codec.SWITCH, raising=False)
    if switch:
        monkeypatch.setenv(codec.SWITCH, switch)
    command = [
        sys.executable,
        "-c",
        f"import os; print(os.environ.get({codec.SWITCH!r}), os.environ.get('TOPICS_READ_ONLY'))",
    ]
    server = ServerProcess(tmp_path)
    monkeypatch.setattr(server, "command", command)
    server.launch()
    assert server.exit_code() == 0
    assert server.log() == f"{switch} None\n"


# --- what a server costs --------------------------------------------------------------------------------


def test_a_process_that_does_nothing_costs_next_to_nothing() -> None:
    idle = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=PIPE, stdout=PIPE)
    try:
        assert idle.stdout is not None
        idle.stdout.readline()
        before = cpu_seconds(idle.pid), wake_ups(idle.pid)
        time.sleep(0.1)
        assert 0 < before[0] <= cpu_seconds(idle.pid) < before[0] + 0.01
        assert before[1] <= wake_ups(idle.pid) <= before[1] + 1
    finally:
        idle.communicate(b"\n")


def test_what_children_cost_counts_while_they_run_and_behind_them() -> None:
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
        # Of those that have ended, the system tells hundredths of a second.
        assert cpu_seconds(parent.pid) > running - 0.03
    finally:
        parent.communicate(b"\n")


# --- figures --------------------------------------------------------------------------------------------


def test_bar_on_the_ratio_is_judged_by_the_ratio() -> None:
    figure = Figure("a", "b", 150.0, "records/s", peer="p", peer_value=100.0, bar=times_peer(1.5))
    assert figure.reached is True
    figure.peer_value = 101.0
    assert figure.reached is False


def test_the_codec_in_python_has_its_own_bar_if_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limits in (("native", [2.4, 1.5]), ("python", [1.7, 1.5])):
        monkeypatch.setattr(codec, "NAME", name)
        bars = times_peer(2.4, python_codec=1.7), times_peer(1.5)
        assert [bar.limit for bar in bars] == limits
        assert all(bar.of_ratio for bar in bars)


def test_bar_at_most_is_judged_by_the_value() -> None:
    assert Figure("a", "b", 48.0, "bytes", bar=at_most(48)).reached is True
    assert Figure("a", "b", 48.1, "bytes", bar=at_most(48)).reached is False
    assert Figure("a", "b", 48.1, "bytes").reached is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.112, "0.112"), (999.0, "999"), (999.9, "1 k"), (33_300, "33.3 k"), (1.5e6, "1.5 M")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_table_shows_what_was_not_reached() -> None:
    text = table([Figure("area", "slow", 1.0, "s", bar=at_most(0.5), note="because")])
    assert "-- area" in text
    assert "≤ 0.5" in text
    assert "NO" in text
    assert "because" in text


# --- report ---------------------------------------------------------------------------------------------


def report() -> Report:
    figure = Figure("area", "what", 2.0, "records/s", peer="p", peer_value=1.0, note="a note")
    machine = Machine(2, "chip", "Linux", "3.11", "7.0", "2030-01-01", 0.5, 0.7)
    return Report("python -m benchmarks area", machine, [figure], {"other": "it broke"})


def test_report_reads_back(tmp_path: Path) -> None:
    save(report(), tmp_path / "r.json")
    assert msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Report) == report()


def test_readme_changes_only_between_the_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    write_readme(report(), readme)
    write_readme(report(), readme)
    text = readme.read_text()
    assert text.startswith(f"above\n{BEGIN}\n")
    assert text.endswith(f"{END}\nbelow\n")
    assert "old" not in text
    assert text.count("| what | 2 records/s | 1 (p) | 2.00 |") == 1
    assert "what: a note." in text
    assert "other could not be measured: it broke." in text


def test_figures_of_other_areas_stay_in_the_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n### first\n\n| 1 |\n\n### area\n\n| 2 |\n\n### last\n\n| 3 |\n{END}\n")
    write_readme(report(), readme)
    headings = [line for line in readme.read_text().splitlines() if line.startswith("###")]
    assert headings == ["### first", "### area", "### last", "### other"]
    assert "| 1 |" in readme.read_text()
    assert "| 2 |" not in readme.read_text()


def test_what_was_left_out_stands_below_the_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def area(session: Session) -> Iterator[Figure]:
        session.leave_out("area", "A (not installed)")
        session.leave_out("area", "B (nobody listens)")
        yield Figure("area", "what", 1.0, "s")

    monkeypatch.setattr(bench, "AREAS", {"area": area})
    assert main(["area", "--quick", "--json", str(tmp_path / "r.json")]) == 0
    assert capsys.readouterr().out.endswith("\narea: left out: A (not installed); B (nobody listens)\n")
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    write_readme(msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Report), readme)
    assert "\n\nLeft out: A (not installed); B (nobody listens).\n" in readme.read_text()


def test_readme_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("text")
    with pytest.raises(ValueError, match="marks"):
        write_readme(report(), readme)
    assert readme.read_text() == "text"


def test_our_readme_has_the_marks() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1


# --- payloads and verification --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 9_999, 99_999_999])
def test_payloads_have_one_size_and_no_blanks(n: int) -> None:
    text = compact(payload(n))
    assert len(text) == PAYLOAD_BYTES
    assert b" " not in text


def test_shapes_differ_in_what_they_say_they_do() -> None:
    assert b" " in SPACED.body([1])
    assert b" " not in COMPACT.body([1])
    assert b'"tag":"order:0001"' in NAMED.body([1])
    assert NAMED.fields(1)[-1] == COMPACT.fields(1)[-1]


def diff_reply(numbers: list[int], seqs: list[int]) -> bytes:
    records = [{"$seq": seq, "$ts": 0, "data": payload(n)} for n, seq in zip(numbers, seqs, strict=True)]
    return b"HTTP/1.1 200 OK\r\n\r\n" + compact({"records": records, "next_from_seq": seqs[-1]})


def test_reader_notices_a_wrong_record() -> None:
    assert verify_diff(diff_reply([4, 5, 6], [4, 5, 6]), 0) == 3
    with pytest.raises(WrongReply):
        verify_diff(diff_reply([4, 6, 6], [4, 5, 6]), 0)


def range_reply(numbers: list[int], count: int) -> bytes:
    reply = b"*%d\r\n" % count
    for n in numbers:
        text = compact(payload(n))
        reply += b"*2\r\n$3\r\n1-%d\r\n*2\r\n$4\r\ndata\r\n$%d\r\n%b\r\n" % (n % 10, len(text), text)
    return reply


def test_reader_notices_a_wrong_entry() -> None:
    assert verify_range(range_reply([4, 5, 6], 3), 8) == 3
    with pytest.raises(WrongReply):
        verify_range(range_reply([4, 6], 3), 8)
    with pytest.raises(WrongReply):
        verify_range(range_reply([4, 6, 5], 3), 8)


def test_jobs_survive_the_way_to_the_generator() -> None:
    job = Job(1, "redis", [[Request(b"x", reply_lines=2), Request(b"y", reply_bytes=7)]], verify=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job) == job


def test_what_is_recorded_names_no_place_on_somebodys_machine() -> None:
    options = bench._parser().parse_args(["watch", "--quick", "--json", "/tmp/x/y.json", "--write-readme"])
    assert bench.repeatable(options) == ["watch", "--quick"]
    folder = ROOT / "benchmarks"
    for path in (folder / "README.md", folder / "instructions.json"):
        assert not re.search(r"(?<![\w.])/(tmp|root|home|work|var)/", path.read_text()), path
