"""`topics status`, `bench` and `completion`; `demo` is run by the test of docs/cli.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import topics
from tests.cli.terminal import Terminal
from tests.support import ServerProcess
from topics.cli.remote.status import of_server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    """What is wrong with it is wrong with it alone."""
    process = ServerProcess(tmp_path).start()
    yield process
    process.stop()


def attention(told: dict[str, Any]) -> list[str]:
    """The disk of the machine that runs the tests is not what they are about."""
    return [text for text in told["attention"] if not text.startswith("the disk")]


def test_status(own: ServerProcess) -> None:
    url = own.url
    well = topics("status", TOPICS_URL=url)
    told = well.json
    assert (told["writes"], attention(told)) == (True, [])
    assert (well.code, told["status"]) == ((1, "attention") if told["attention"] else (0, "ok"))
    assert told["disk"]["free_bytes"] > 0
    own.put("/v0/topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    own.post("/v0/topics/jobs", {"records": [{"data": 1}]})
    own.post("/v0/topics/jobs/claim", {"node": "n"})
    own.post("/v0/topics/jobs/nack", {"node": "n", "seqs": [1]})
    own.post("/v0/topics/jobs/claim", {"node": "n"})
    own.put("/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    own.put("/v0/routers/stuck", {"source": "many", "dest": "full"})
    own.post("/v0/topics/many", {"records": [{"data": 1}] * 3})
    own.get("/v0/routers/stuck")
    ill = topics("status", TOPICS_URL=url)
    assert (ill.code, ill.json["status"], ill.json["writes"]) == (1, "attention", True)
    assert "dead has 1 dead letter of jobs" in attention(ill.json)
    assert any("router stuck waits for room in full" in text for text in attention(ill.json))
    assert topics("drop", "dead", "--yes", TOPICS_URL=url).code == 0
    own.put("/v0/topics/full", {"cap_records": 10})
    own.get("/v0/routers/stuck")
    assert attention(topics("status", TOPICS_URL=url).json) == []  # and not what it said a moment ago


@pytest.mark.parametrize(
    ("free", "writes", "full_in_ms", "told"),
    [
        (2_000_000, True, None, ["the disk has 1.9 MiB left, less than the 8.0 MiB that are kept"]),
        (
            2_000_000,
            False,
            0,
            ["writes are off: disk_full", "the disk has 1.9 MiB left and is full in about"],
        ),
        (40_000_000, True, 7_200_000, ["the disk has 38.1 MiB left and is full in about 2 h"]),
        (40_000_000, True, None, []),
        (400_000_000, True, 7_200_000, []),
    ],
)
def test_a_disk_that_is_short_of_room(
    free: int, writes: bool, full_in_ms: int | None, told: list[str]
) -> None:
    disk = {"free_bytes": free, "size_bytes": 10**9, "reserve_bytes": 1 << 23, "full_in_ms": full_in_ms}
    found = of_server({"writes": writes, "reason": None if writes else "disk_full", "disk": disk})
    assert len(found) == len(told)
    assert all(text.startswith(begin) for text, begin in zip(found, told, strict=True)), found


def test_status_tells_of_loss_that_readers_were_told_of(own: ServerProcess) -> None:
    own.put("/v0/topics/short", {"cap_records": 1})
    own.post("/v0/topics/short", {"records": [{"data": 1}] * 3})
    own.post("/v0/topics/again", {"records": [{"data": 1}]})
    for body in ({}, {}):
        own.post("/v0/topics/short/diff", body)
    own.post("/v0/topics/again/diff", {"from_seq": 1, "epoch": 77})
    told = topics("status", TOPICS_URL=own.url).json
    assert sorted(attention(told)) == [
        "again: readers were told 1 time that the topic was made anew",
        "short: readers were told 2 times of loss by a cap or a restart, 4 records in all",
    ]


def test_bench_says_what_it_could_not_remove(own: ServerProcess) -> None:
    bench = subprocess.Popen(
        [sys.executable, "-m", "topics", "bench", "--seconds", "100", "--url", own.url, "--wait", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (found := own.get("/v0/topics")["topics"]):
        assert bench.poll() is None
    own.kill()
    _, errors = bench.communicate(timeout=60)
    assert bench.returncode == 4
    assert f"topics drop {found[0]['topic']} --yes" in errors


def test_bench_leaves_nothing_behind(server: ServerProcess) -> None:
    before = [topic["topic"] for topic in server.get("/v0/topics")["topics"]]
    done = topics("bench", "--seconds", "0.2", TOPICS_URL=server.url)
    assert done.code == 0
    for figures in (done.json["write"], done.json["read"]):
        assert set(figures) == {"records_per_s", "p50_ms", "p99_ms"}
        assert figures["records_per_s"] > 0
    assert isinstance(done.json["limited_by"], str)
    assert [topic["topic"] for topic in server.get("/v0/topics")["topics"]] == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_with_spark() -> None:
    command = [sys.executable, "-m", "topics", "demo", "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line)["true"] for line in done.stdout.splitlines()]
    assert "Spark reads the same topic: records 3 and 5, and a row that says what is lost." in told


def test_completion(server: ServerProcess, tmp_path: Path) -> None:
    server.put("/v0/topics/shop:orders", {})
    url = server.url
    assert topics("__complete", "re").output.split() == ["read", "restore"]
    assert topics("__complete", "queue", "p").output.split() == ["peek", "push"]
    assert "--dry-run" in topics("__complete", "delete", "x", "--d").output.split()
    assert topics("__complete", "read", "shop:", TOPICS_URL=url).output.split() == ["shop:orders"]
    assert topics("__complete", "read", "shop:", "--url", url, "").output.split() == ["shop:orders"]
    assert topics("__complete", "completion", "").output.split() == ["bash", "fish", "zsh"]
    assert topics("__complete", "read", "sh", TOPICS_URL="http://127.0.0.1:1").output == ""
    assert topics("__complete", "read", "sh\udcff", TOPICS_URL=url).output == ""
    # A value of a flag is no topic.
    assert topics("__complete", "write", "x", "--input", "", TOPICS_URL=url).output.split() == [
        "csv",
        "json",
        "lines",
    ]
    assert topics("__complete", "read", "x", "--tag", "sh", TOPICS_URL=url).output == ""
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "topics.toml").write_text('[profiles.ours]\nurl = "http://x"\n')
    assert topics("__complete", "list", "--profile", "", HOME=str(tmp_path)).output.split() == ["ours"]
    for shell in ("bash", "zsh", "fish"):
        assert "topics __complete" in topics("completion", shell).output
    assert topics("completion", "tcsh").code == 2
    script = tmp_path / "completion.bash"
    script.write_text(topics("completion", "bash").output)
    asked = f"""
        topics() {{ TOPICS_URL={url} {sys.executable} -m topics "$@"; }}
        source {script}
        COMP_LINE="topics read --wait 60 shop:o"; COMP_POINT=${{#COMP_LINE}}
        _topics; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60)
    # The shell has taken the word apart at the colon, and replaces what stands behind it.
    assert done.stdout == "orders\n"


def in_path() -> str:
    """Where shells find the command."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_completion_in_fish(server: ServerProcess, tmp_path: Path) -> None:
    server.put("/v0/topics/fishes:all", {})
    asked = """
        topics completion fish | source
        complete -C "topics read --wait 60 fishes:a"
        complete -C "topics rea"; complete -C "topics drop x --d"
    """
    where = {"TOPICS_URL": server.url, "PATH": in_path(), "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, timeout=60, env=where)
    assert done.stdout.split() == ["fishes:all", "read", "--dry-run"], done.stderr


class Zsh(Terminal):
    command, patience = ("zsh",), ()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_completion_in_zsh(server: ServerProcess, tmp_path: Path) -> None:
    server.put("/v0/topics/zebras:all", {})
    with Zsh("-f", "-i", url=server.url, PATH=in_path(), HOME=str(tmp_path)) as zsh:
        zsh.type("autoload -U compinit; compinit -u -D; source <(topics completion zsh); PS1=rea''dy\n")
        zsh.await_text("ready")
        zsh.type("topics read --wait 60 zebras:a\t")
        zsh.await_text("zebras:all")
        zsh.type("\x15topics complet\t")
        zsh.await_text("topics completion")
        zsh.process.kill()
