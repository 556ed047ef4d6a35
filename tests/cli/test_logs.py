"""Log lines: one event a line whatever is in it, for people and as JSON, from the level asked for."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ServerProcess, eventually
from topics.cli.logs import HumanLines, JsonLines, LogFile

NASTY = 'a"b\n\x1b[31m\r\u2028INFO forged\x7f'


def record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("topics.http", logging.WARNING, "", 0, message, arguments, None)
    if fields:
        made.fields = fields
    return made


def test_a_human_line_stays_one_line() -> None:
    line = HumanLines().format(record("hello %s", NASTY, name=NASTY, status=200))
    assert len(line.splitlines()) == 1
    assert not any(ord(character) < 32 for character in line)
    assert line.endswith(" status=200")
    assert "WARNING topics.http: hello a" in line


@pytest.mark.parametrize("formatter", [HumanLines(), JsonLines()])
def test_a_path_that_is_no_text_can_be_told(formatter: logging.Formatter) -> None:
    line = formatter.format(record("it is in %s", "a\udcffb", data_dir="a\udcffb"))
    assert len(line.splitlines()) == 1
    assert line.encode("utf-8", "backslashreplace").count(b"udcff") == 2


def test_a_json_line_stays_one_line_and_keeps_every_character() -> None:
    line = JsonLines().format(record("hello %s", NASTY, name=NASTY, status=200))
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert entry["message"] == "hello " + NASTY
    assert (entry["name"], entry["status"]) == (NASTY, 200)
    assert (entry["level"], entry["logger"]) == ("warning", "topics.http")
    assert entry["time"].endswith("+00:00")


@pytest.mark.parametrize("formatter", [HumanLines(), JsonLines()])
def test_tracebacks_are_shown(formatter: logging.Formatter) -> None:
    made = record("it broke")
    try:
        raise ValueError("because")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = formatter.format(made)
    assert "ValueError: because" in line
    if isinstance(formatter, JsonLines):
        assert "ValueError: because" in json.loads(line)["exception"]
        assert len(line.splitlines()) == 1


def lines(directory: Path) -> list[str]:
    return (directory / "server.log").read_text().splitlines()


def test_a_server_logs_json_when_asked(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, TOPICS_LOG_FORMAT="json", TOPICS_ACCESS_LOG="1").start()
    server.post("/v0/topics/logged", {"records": [{"data": 1}]})
    server.stop()
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines(tmp_path)]
    assert any(entry["message"].startswith("listening on") for entry in entries)
    (write,) = [entry for entry in entries if entry.get("name") == "logged"]
    assert (write["method"], write["route"], write["status"]) == ("POST", "/v0/topics/:topic", 201)
    assert write["logger"] == "topics.access"
    assert write["ms"] > 0


def test_a_level_hides_what_is_below_it(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, TOPICS_LOG_LEVEL="warning").start()
    server.stop()
    assert lines(tmp_path) == []


REFUSING = "refusing to listen on 0.0.0.0"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"TOPICS_HOST": "0.0.0.0"}, [REFUSING]),
        ({"TOPICS_PROT": "1", "TOPICS_MAX_TOPICS": "many"}, ["TOPICS_MAX_TOPICS", "TOPICS_PROT"]),
    ],
)
def test_why_a_server_does_not_start_is_told_as_json(
    tmp_path: Path, given: dict[str, str], told: list[str]
) -> None:
    server = ServerProcess(tmp_path, TOPICS_LOG_FORMAT="json", **given)
    server.launch()
    assert server.exit_code() == 2
    entries = sorted(map(json.loads, lines(tmp_path)), key=lambda entry: str(entry["message"]))
    assert {(entry["level"], entry["logger"]) for entry in entries} == {("error", "topics")}
    assert all(text in entry["message"] for entry, text in zip(entries, told, strict=True)), entries


@pytest.mark.parametrize(
    ("file", "told"), [(".", "TOPICS_LOG_FILE: cannot write"), ("log", REFUSING)], ids=["folder", "file"]
)
def test_why_a_server_does_not_start_is_told_where_it_was_started(
    tmp_path: Path, file: str, told: str
) -> None:
    server = ServerProcess(tmp_path, TOPICS_LOG_FILE=str(tmp_path / file), TOPICS_HOST="0.0.0.0")
    server.launch()
    assert server.exit_code() == 2
    (line,) = lines(tmp_path)
    assert line.startswith(f"topics: {told}")
    assert file == "." or told in (tmp_path / file).read_text()


def hang_up(server: ServerProcess, log: Path, times: int) -> None:
    server.signal(signal.SIGHUP)
    eventually(lambda: log.exists() and log.read_text().count("read again") == times, 20)


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    log, moved = tmp_path / "log", tmp_path / "log.1"
    server = ServerProcess(tmp_path, TOPICS_LOG_FILE=str(log), TOPICS_ACCESS_LOG="1").start()
    try:
        log.rename(moved)
        server.put("/v0/topics/before", {})
        hang_up(server, log, 1)
        server.put("/v0/topics/after", {})
        assert "name=before" in moved.read_text()
        assert "name=after" not in moved.read_text()
        assert "name=after" in log.read_text()
        # Without a move it goes on where it was.
        hang_up(server, log, 2)
        assert "name=after" in log.read_text()
    finally:
        server.stop()
    assert lines(tmp_path) == []


def test_a_file_that_cannot_be_opened_again_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "log"
    server = ServerProcess(tmp_path, TOPICS_LOG_FILE=str(log)).start()
    try:
        folder.rename(tmp_path / "away")
        moved = tmp_path / "away" / "log"
        hang_up(server, moved, 1)
        assert f"TOPICS_LOG_FILE: cannot write {log}" in moved.read_text()
    finally:
        server.stop()


def test_lines_that_find_no_room_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile("/dev/full")
    for _ in range(3):
        handler.handle(record("lost"))
    assert capsys.readouterr().err == "topics: the log cannot be written: No space left on device\n"
    handler.reopen()
    handler.handle(record("lost"))
    assert capsys.readouterr().err.count("\n") == 1
    handler.close()
