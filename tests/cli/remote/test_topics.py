"""Topics, routers and their removal: list, create, config, describe, ledger, drop, delete, route."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import Outcome, topics
from tests.support import ServerProcess

Run = Callable[..., Outcome]


@pytest.fixture
def run(server: ServerProcess) -> Run:
    return lambda *arguments: topics(*arguments, TOPICS_URL=server.url)


def test_create_and_config(run: Run) -> None:
    made = run("create", "made", "cap_records=10", "durability=fsync", "ttl_ms=60000")
    assert made.code == 0
    assert (made.rows[0]["created"], made.rows[0]["config"]["cap_records"]) == (True, 10)
    again = run("create", "made")
    assert (again.code, "topic_exists" in again.errors) == (1, True)
    (config,) = run("config", "made").rows
    assert (config["cap_records"], config["durability"], config["type"]) == (10, "fsync", "log")
    (changed,) = run("config", "made", "cap_records=20", "priority=null").rows
    assert (changed["cap_records"], changed["durability"], changed["ttl_ms"]) == (20, "fsync", 60000)
    assert run("config", "made", "durable=false").rows[0]["durability"] == "disk"
    assert run("config", "made").rows[0]["cap_records"] == 20


def test_mistakes_of_settings(run: Run) -> None:
    run("create", "strict")
    assert "did you mean cap_records?" in run("create", "other", "cap_recods=1").errors
    for wrong in ("cap_recods=1", "cap_records", "cap_records=-1", "type=heap"):
        assert run("config", "strict", wrong).code == 2
    assert run("config", "strict", "type=queue").code == 1
    missing = run("config", "strct")
    assert (missing.code, "did you mean strict?" in missing.errors) == (1, True)
    assert run("config", "strct", "cap_records=1").code == 1
    assert "strct" not in run("list", "str").output


def test_what_a_setting_cannot_do_is_noted(run: Run) -> None:
    made = run("create", "noted", "type=queue", "max_deliveries=3")
    assert made.code == 0
    assert "dead_letter" in made.errors


def test_list_describe_ledger(run: Run, server: ServerProcess) -> None:
    server.put("/v0/topics/look-b", {"cap_records": 2})
    server.post("/v0/topics/look-b", {"records": [{"data": n} for n in range(5)]})
    server.put("/v0/topics/look-a", {})
    rows = run("list", "look-").rows
    assert [(row["topic"], row["head_seq"], row["count"]) for row in rows] == [
        ("look-a", 0, 0),
        ("look-b", 5, 2),
    ]
    (state,) = run("describe", "look-b", "--json").rows
    assert (state["topic"], state["earliest_seq"], state["config"]["cap_records"]) == ("look-b", 4, 2)
    (ledger,) = run("ledger", "look-b").rows
    assert (ledger["from"], ledger["to"], ledger["kind"]) == (1, 3, "cap")
    for verb in ("describe", "ledger"):
        assert "did you mean look-b?" in run(verb, "look-bb").errors


def test_delete(run: Run, server: ServerProcess) -> None:
    records = [{"data": n, "tag": f"user:{n}"} for n in range(1, 7)]
    server.post("/v0/topics/less", {"records": records})
    asked = run("delete", "less", "--seqs", "2,4")
    assert (asked.code, "--yes" in asked.errors) == (2, True)
    assert run("delete", "less", "--yes").code == 2
    (dry,) = run("delete", "less", "--seqs", "2,4", "--dry-run").rows
    assert (dry["deleted"], dry["dry_run"], dry["count"]) == (2, True, 4)
    (done,) = run("delete", "less", "--seqs", "2,4", "--yes").rows
    assert (done["deleted"], done["dry_run"], done["count"]) == (2, False, 4)
    assert run("delete", "less", "--tag", "user:6", "--yes").rows[0]["deleted"] == 1
    assert run("delete", "less", "--before-seq", "3", "--yes").rows[0]["count"] == 2
    assert [row["seq"] for row in run("read", "less").rows] == [3, 5]
    assert run("delete", "nowhere", "--tag", "x", "--yes").code == 1
    assert run("delete", "less", "--seqs", "2,x", "--yes").code == 2


def test_drop(run: Run, server: ServerProcess) -> None:
    server.post("/v0/topics/dropped", {"records": [{"data": 1}]})
    assert run("drop", "dropped").code == 2
    (dry,) = run("drop", "dropped", "--dry-run").rows
    assert (dry["dry_run"], dry["count"], dry["deleted"]) == (True, 1, False)
    assert run("drop", "dropped", "--if-empty", "--yes").code == 1
    assert run("describe", "dropped").code == 0
    (done,) = run("drop", "dropped", "--yes").rows
    assert done["deleted"] is True
    again = run("drop", "dropped", "--yes")
    assert (again.code, "nothing to drop" in again.errors) == (1, True)
    assert run("drop", "dropped", "--dry-run").code == 1


def test_routes(run: Run) -> None:
    (made,) = run("route", "add", "copies", "from-here", "to-there", "--tag", "user:*").rows
    assert (made["source"], made["dest"], made["filter"]) == (
        "from-here",
        "to-there",
        ["tag", "Glob", "user:*"],
    )
    assert run("route", "add", "copies", "from-here", "elsewhere").code == 1
    run("write", "from-here", "1", "--tag", "user:7")
    run("write", "from-here", "2", "--tag", "other")
    assert [row["data"] for row in run("read", "to-there").rows] == [1]
    assert [row["router"] for row in run("route", "list").rows] == ["copies"]
    assert run("route", "drop", "copies").code == 2
    assert run("route", "drop", "copies", "--yes").rows == [{"router": "copies", "deleted": True}]
    again = run("route", "drop", "copies", "--yes")
    assert (again.code, "nothing to drop" in again.errors) == (1, True)
