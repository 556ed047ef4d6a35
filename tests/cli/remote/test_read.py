"""`topics read` and `topics tail`: records, losses in their places, positions, formats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, topics
from tests.support import ServerProcess, free_port
from topics.client.wire.requests import Address

Run = Callable[..., Outcome]


@pytest.fixture
def run(server: ServerProcess) -> Run:
    return lambda *arguments: topics(*arguments, TOPICS_URL=server.url)


def seqs(outcome: Outcome) -> list[int]:
    return [row["seq"] for row in outcome.rows if "seq" in row]


@pytest.fixture(scope="module")
def orders(server: ServerProcess) -> str:
    records = [
        {"data": {"sku": f"S{n}"}, "tag": f"user:{n % 2}", "node": "web", "meta": {"n": n}}
        for n in range(1, 21)
    ]
    server.post("/v0/topics/orders", {"records": records})
    return "orders"


@pytest.fixture(scope="module")
def capped(server: ServerProcess) -> str:
    server.put("/v0/topics/capped", {"cap_records": 2})
    server.post("/v0/topics/capped", {"records": [{"data": n} for n in range(1, 6)]})
    return "capped"


def test_a_record_as_a_line(orders: str, run: Run) -> None:
    first = run("read", orders, "-n", "1").rows[0]
    assert set(first) == {"topic", "epoch", "seq", "ts", "data", "tag", "node", "meta"}
    assert (first["seq"], first["data"], first["tag"], first["node"], first["meta"]) == (
        1,
        {"sku": "S1"},
        "user:1",
        "web",
        {"n": 1},
    )


def test_where_it_begins_and_ends(orders: str, run: Run) -> None:
    assert seqs(run("read", orders)) == [*range(1, 21)]
    assert seqs(run("read", orders, "--from", "18")) == [18, 19, 20]
    assert seqs(run("read", orders, "--last", "2")) == [19, 20]
    assert seqs(run("read", orders, "--last", "0")) == []
    assert seqs(run("read", orders, "--limit", "2", "--tag", "user:0")) == [2, 4]
    assert seqs(run("read", orders, "--tag", "user:*", "--last", "1")) == [20]
    assert seqs(run("read", orders, "--since", "10m")) == [*range(1, 21)]
    assert seqs(run("read", orders, "--since", "2100-01-01")) == []
    assert seqs(run("read", orders, "--until", "1h")) == []
    epoch = run("read", orders, "-n", "1").rows[0]["epoch"]
    assert seqs(run("read", f"{orders}@17~{epoch}")) == [18, 19, 20]
    assert seqs(run("read", f"{orders}@17")) == [18, 19, 20]


def test_a_prefix_that_nothing_begins_with_is_told(orders: str, run: Run) -> None:
    none = run("read", "ordre*", orders)
    assert (none.code, none.output) == (1, "")
    assert none.errors == 'topics: no topic begins with "ordre": did you mean order*?\n'
    assert run("read", "zz*").errors == 'topics: no topic begins with "zz"\n'
    # What is followed may come yet.
    waiting = run("tail", "zz*", orders, "-n", "1")
    assert (waiting.code, seqs(waiting)) == (0, [11])
    assert waiting.errors == 'topics: no topic begins with "zz" yet: waiting for one\n'


def test_loss_is_in_its_place(capped: str, run: Run) -> None:
    lost, *records = run("read", capped).rows
    assert lost == {
        "topic": capped,
        "epoch": records[0]["epoch"],
        "lost": {"gap_from": 1, "gap_to": 3, "reason": "cap"},
    }
    assert [record["seq"] for record in records] == [4, 5]


def test_more_of_the_last_than_one_answer_has(server: ServerProcess, run: Run) -> None:
    server.put("/v0/topics/long", {"cap_records": 1500})
    for _ in range(2):
        server.post("/v0/topics/long", {"records": [{"data": 0}] * 1000})
    rows = run("read", "long", "--last", "1200").rows
    assert [row["seq"] for row in rows] == [*range(801, 2001)]
    assert "lost" in run("read", "long", "--last", "1600").rows[0]


def test_an_end_at_the_loss(capped: str, run: Run) -> None:
    ended = run("read", capped, "--fail-on-loss")
    assert ended.code == 3
    assert [set(row) for row in ended.rows] == [{"topic", "epoch", "lost"}]
    epoch = ended.rows[0]["epoch"]
    assert f"topics read '{capped}@3~{epoch}' --fail-on-loss" in ended.errors
    gone_on = run("read", f"{capped}@3~{epoch}", "--fail-on-loss")
    assert (gone_on.code, seqs(gone_on)) == (0, [4, 5])


@pytest.mark.parametrize("form", ["data", "{seq} {data}"])
def test_loss_does_not_stand_between_data(capped: str, run: Run, form: str) -> None:
    shown = run("read", capped, "--format", form)
    assert shown.code == 0
    assert shown.output.split("\n")[:2] == (["4", "5"] if form == "data" else ["4 4", "5 5"])
    assert "lost 1-3 (cap)" in shown.errors
    assert run("read", capped, "--format", form, "--fail-on-loss").code == 3


def test_templates(orders: str, run: Run, server: ServerProcess) -> None:
    form = "{topic}/{seq:>3} {data[sku]} {data.sku} {tag} {node} {meta[n]} {data[none]}|"
    assert run("read", orders, "-n", "1", "--format", form).output == "orders/  1 S1 S1 user:1 web 1 |\n"
    server.post("/v0/topics/shapes", {"records": [{"data": each} for each in ("text", [1, "a"], None, True)]})
    assert run("read", "shapes", "--format", "{data}").output == 'text\n[1,"a"]\nnull\ntrue\n'
    assert run("read", "shapes", "--format", "{data[1]}").output == "\na\n\n\n"
    for wrong, told in (
        ("{sq}", "did you mean seq?"),
        ("{seq", "cannot be read"),
        ("jsn", "did you mean json?"),
    ):
        refused = run("read", orders, "--format", wrong)
        assert (refused.code, refused.output) == (2, "")
        assert told in refused.errors


def test_another_life_of_a_topic(server: ServerProcess, run: Run) -> None:
    server.post("/v0/topics/lives", {"records": [{"data": 1}, {"data": 2}]})
    before = run("read", "lives").rows[0]["epoch"]
    server.request("DELETE", "/v0/topics/lives")
    server.post("/v0/topics/lives", {"records": [{"data": "new"}]})
    told, record = run("read", f"lives@1~{before}").rows
    assert told == {"topic": "lives", "epoch": record["epoch"], "restarted": {"previous_epoch": before}}
    assert (record["seq"], record["data"]) == (1, "new")
    assert run("read", f"lives@1~{before}", "--fail-on-loss").code == 3


def test_several_topics(orders: str, capped: str, run: Run) -> None:
    both = run("read", capped, "order*", "--last", "1")
    assert [(row["topic"], row["seq"]) for row in both.rows if "seq" in row] == [(capped, 5), (orders, 20)]
    assert run("read", "nothing-like-it*").output == ""


def test_mistakes(orders: str, run: Run) -> None:
    missing = run("read", "ordesr")
    assert (missing.code, "did you mean orders?" in missing.errors) == (1, True)
    for wrong in (("--from", "x"), ("--since", "yesterday"), ("--last", "1", "--from", "2"), ("--lst", "1")):
        assert run("read", orders, *wrong).code == 2
    assert run("read", "orders@x").code == 2
    assert run("read").code == 2


class Tail:
    """A process that follows, and is interrupted."""

    def __init__(self, url: str, *arguments: str, wait: str = "100") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "topics", *arguments, "--wait", wait],
            env={**os.environ, "TOPICS_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def next(self) -> dict[str, object]:
        assert self.process.stdout is not None
        row: dict[str, object] = json.loads(self.process.stdout.readline())
        return row

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def test_it_follows_over_a_restart_and_says_how_to_go_on(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path).start()
    server.post("/v0/topics/live", {"records": [{"data": n} for n in range(1, 13)]})
    tail, all_of_them = Tail(server.url, "tail", "live"), Tail(server.url, "tail", "li*", "--last", "1")
    assert [tail.next()["seq"] for _ in range(10)] == [*range(3, 13)]
    assert all_of_them.next()["seq"] == 12
    server.kill()
    server.start(TOPICS_PORT=server.address.rpartition(":")[2])
    server.post("/v0/topics/live", {"records": [{"data": "after"}]})
    news = tail.next()
    assert (news["seq"], news["data"]) == (13, "after")
    assert all_of_them.next()["seq"] == 13
    code, errors = tail.interrupt()
    assert code == 130
    assert errors.strip().endswith(f"topics tail 'live@13~{news['epoch']}'")
    # What comes meanwhile is not cut to its end.
    code, errors = all_of_them.interrupt()
    assert errors.strip().endswith(f"topics tail 'li*' 'live@13~{news['epoch']}' --from 1")
    server.stop()


def test_what_is_to_come_is_no_loss(server: ServerProcess) -> None:
    server.post("/v0/topics/young", {"records": [{"data": 1}]})
    assert topics("read", "young", "--from", "4", "--fail-on-loss", TOPICS_URL=server.url).rows == []
    tail = Tail(server.url, "tail", "young", "--from", "4", "--fail-on-loss")
    server.post("/v0/topics/young", {"records": [{"data": number} for number in range(2, 6)]})
    assert [tail.next()["seq"] for _ in range(2)] == [4, 5]
    assert tail.interrupt()[0] == 130


def test_what_follows_says_how_to_go_on_without_a_server(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path).start()
    server.post("/v0/topics/gone", {"records": [{"data": 1}]})
    tail = Tail(server.url, "tail", "gone*", wait="1.5")
    epoch = tail.next()["epoch"]
    server.kill()
    _, errors = tail.process.communicate(timeout=60)
    assert tail.process.returncode == 4
    assert errors.count("\n") == 2
    assert f"go on with: topics tail 'gone*' 'gone@1~{epoch}'" in errors


def test_it_follows_topics_that_come_later(server: ServerProcess) -> None:
    server.post("/v0/topics/f-one", {"records": [{"data": 1}]})
    tail = Tail(server.url, "read", "f-*", "--follow")
    assert tail.next()["topic"] == "f-one"
    server.post("/v0/topics/f-two", {"records": [{"data": 2}]})
    later = tail.next()
    assert (later["topic"], later["seq"], later["data"]) == ("f-two", 1, 2)
    server.post("/v0/topics/f-one", {"records": [{"data": 3}]})
    assert tail.next()["data"] == 3
    code, errors = tail.interrupt()
    assert code == 130
    assert "topics read 'f-*' 'f-one@2~" in errors


def test_a_reader_that_leaves_is_no_error(orders: str, server: ServerProcess) -> None:
    many = server.url
    command = f"{sys.executable} -m topics read {orders} --wait 60 --url {many} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_without_a_server_there_is_nothing_to_go_on_with() -> None:
    none = topics("read", "orders", TOPICS_URL=f"http://127.0.0.1:{free_port()}")
    assert (none.code, none.output, none.errors.count("\n")) == (4, "", 1)


def test_one_request_comes_before_the_first_line(
    orders: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page tells that the topic is there."""
    rendered: list[bytes] = []
    render = Address.render

    def noted(address: Address, request: Any) -> bytes:
        rendered.append(render(address, request))
        return rendered[-1]

    monkeypatch.setattr(Address, "render", noted)
    assert seqs(run("read", orders, "-n", "1")) == [1]
    assert [request.partition(b" HTTP")[0] for request in rendered] == [b"POST /v0/topics/orders/diff"]
