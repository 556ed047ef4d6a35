"""What a person sees: tables, colours, questions. Nothing that comes out of data moves the cursor."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import topics
from tests.cli.terminal import Terminal
from tests.support import ServerProcess

RED = "\x1b[1;31m"


def test_records_and_losses_as_lines(server: ServerProcess) -> None:
    server.put("/v0/topics/shown", {"cap_records": 2})
    nasty = "\x1b[2J\u009b31m\u202egone\nnext"
    records = [{"data": 0}, {"data": 0}, {"data": 0}, {"data": {"text": nasty}, "tag": nasty}]
    server.post("/v0/topics/shown", {"records": records})
    with Terminal("read", "shown", url=server.url) as terminal:
        assert terminal.ended() == 0
        assert "shown: lost 1-2 (cap)" in terminal.shown
        assert RED + "shown: lost" in terminal.raw
        (last,) = (line for line in terminal.shown.splitlines() if "gone" in line)
        assert r"\x1b[2J\x9b31m\u202egone\nnext" in last
        assert "\x1b[2J" not in terminal.raw
        assert "\u202e" not in terminal.raw
    with Terminal("read", "shown", "--format", "{tag} {data[text]}", url=server.url, NO_COLOR="1") as plain:
        assert plain.ended() == 0
        assert r"\x1b[2J\x9b31m\u202egone\nnext" in plain.shown
        assert "\x1b[1;31m" not in plain.raw
        assert "\x1b[2J" not in plain.raw
    with Terminal("read", "shown", "--json", url=server.url) as machine:
        assert machine.ended() == 0
        assert '"lost":{"gap_from":1,"gap_to":2,"reason":"cap"}' in machine.shown


def test_a_table(server: ServerProcess) -> None:
    server.post("/v0/topics/table-one", {"records": [{"data": 1}] * 1234})
    with Terminal("list", "table-", url=server.url) as terminal:
        assert terminal.ended() == 0
        header, row = terminal.shown.strip().splitlines()
        assert header.split()[:3] == ["topic", "type", "head_seq"]
        assert row.split()[0] == "table-one"
        assert "1,234" in row


def test_dropping_asks_for_the_name(server: ServerProcess) -> None:
    server.post("/v0/topics/precious", {"records": [{"data": 1}] * 3})
    with Terminal("drop", "precious", url=server.url) as terminal:
        terminal.await_text("type its name")
        assert "3 records" in terminal.shown
        terminal.type("y\n")
        assert terminal.ended() == 1
    assert server.get("/v0/topics/precious")["count"] == 3
    with Terminal("drop", "precious", url=server.url) as terminal:
        terminal.await_text("type its name")
        terminal.type("precious\n")
        assert terminal.ended() == 0
    assert topics("describe", "precious", TOPICS_URL=server.url).code == 1


def test_deleting_shows_what_it_would_do(server: ServerProcess) -> None:
    server.post("/v0/topics/trimmed", {"records": [{"data": 1}] * 3})
    with Terminal("delete", "trimmed", "--before-seq", "3", url=server.url) as terminal:
        terminal.await_text("delete them?")
        assert "this removes 2 records of trimmed" in terminal.shown
        terminal.type("\n")
        assert terminal.ended() == 1
    assert server.get("/v0/topics/trimmed")["count"] == 3
    with Terminal("delete", "trimmed", "--before-seq", "3", url=server.url) as terminal:
        terminal.await_text("delete them?")
        terminal.type("y\n")
        assert terminal.ended() == 0
    assert server.get("/v0/topics/trimmed")["count"] == 1


def test_ctrl_c(server: ServerProcess) -> None:
    server.post("/v0/topics/watched", {"records": [{"data": "first"}]})
    with Terminal("tail", "watched", url=server.url) as terminal:
        terminal.await_text('"first"')
        terminal.interrupt()
        assert terminal.ended() == 130
        assert "topics tail 'watched@1~" in terminal.shown
        assert "Traceback" not in terminal.shown


def test_status_for_a_person(server: ServerProcess) -> None:
    with Terminal("status", url=server.url) as terminal:
        code = terminal.ended()
        assert code in (0, 1)
        assert "writes     on" in terminal.shown
        assert ("nothing needs attention" in terminal.shown) == (code == 0)


def test_a_file_is_written_with_a_bar(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    file.write_text("".join(f"{number}\n" for number in range(20_000)))
    with Terminal("write", "numbers", url=server.url, given=file) as terminal:
        assert terminal.ended() == 0
        assert "writing" in terminal.shown
        assert "20,000 records in numbers, seqs 1 to 20,000" in terminal.shown
