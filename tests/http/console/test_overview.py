"""The first screen: one answer with the server, what needs attention, and a page of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.http.streaming import RunningApp

Start = Callable[..., RunningApp]
HOUR_MS = 3_600_000


def overview(app: RunningApp, query: str = "", **headers: str) -> Any:
    answer = app.call("GET", f"/v0/overview{query}", **headers)
    assert answer.status == 200, answer.body
    return answer.json


def attention(app: RunningApp, kind: str) -> list[Any]:
    return [item for item in overview(app)["attention"] if item["kind"] == kind]


def look_again(app: RunningApp) -> None:
    """The next answer is not one of a moment ago."""
    app.app.service.attention._good_until = 0.0


def test_a_topic_says_what_it_lost_and_what_was_deleted(start: Start) -> None:
    app = start()
    assert overview(app)["topics"] == []
    app.call("PUT", "/v0/topics/t", {"cap_records": 5})
    app.write("t", *range(12))
    app.call("POST", "/v0/topics/t/delete", {"seqs": [10, 11]})
    app.call("PUT", "/v0/topics/t/cursors/far", {"seq": 8})
    app.call("PUT", "/v0/topics/t/cursors/near", {"seq": 12})
    (row,) = overview(app)["topics"]
    assert row["last_write_ts"] > 0
    lag = row["lag"]
    assert lag.pop("ms") >= 0
    assert lag == {"consumer": "far", "records": 4, "cursors": 2}
    told = {"topic", "type", "durability", "head_seq", "earliest_seq", "count", "bytes", "lost", "deleted"}
    assert {name: row[name] for name in told} == {
        "topic": "t",
        "type": "log",
        "durability": "disk",
        "head_seq": 12,
        "earliest_seq": 8,
        "count": 3,
        "bytes": 4,
        "lost": 7,
        "deleted": 2,
    }


def test_pages_are_short_and_names_are_found_by_a_part_of_them(start: Start) -> None:
    app = start()
    for number in range(205):
        app.call("PUT", f"/v0/topics/Order-{number:03}", {"type": "queue" if number % 2 else "log"})
    first = overview(app, "?page_size=1000")
    assert len(first["topics"]) == 100
    second = overview(app, f"?cursor={first['next_cursor']}")
    third = overview(app, f"?cursor={second['next_cursor']}")
    assert "next_cursor" not in third
    names = [row["topic"] for page in (first, second, third) for row in page["topics"]]
    assert names == [f"Order-{number:03}" for number in range(205)]
    assert [row["topic"] for row in overview(app, "?find=order-20")["topics"]] == names[200:]
    assert {row["type"] for row in overview(app, "?type=queue")["topics"]} == {"queue"}
    assert overview(app, "?find=none-has-this")["topics"] == []
    assert app.call("GET", "/v0/overview?type=heap").status == 400


def test_loss_that_reached_readers(start: Start) -> None:
    app = start()
    app.call("PUT", "/v0/topics/t", {"cap_records": 5})
    app.write("t", *range(12))
    assert attention(app, "told") == []
    app.call("POST", "/v0/topics/t/diff", {"from_seq": 0})
    app.call("POST", "/v0/topics/t/diff", {"from_seq": 4})
    app.call("POST", "/v0/topics/t/diff", {"from_seq": 7})
    look_again(app)
    (told,) = attention(app, "told")
    assert told.pop("last_ms") > 0
    assert told == {"kind": "told", "topic": "t", "reason": "cap", "tombstones": 2, "missed": 7 + 3}


def test_cursors_that_are_about_to_lose(start: Start) -> None:
    app = start()
    app.call("PUT", "/v0/topics/capped", {"cap_records": 100})
    app.write("capped", *range(120))
    for consumer, seq in (("lost", 10), ("soon", 22), ("keeps-up", 115), ("level", 120)):
        app.call("PUT", f"/v0/topics/capped/cursors/{consumer}", {"seq": seq})
    app.call("PUT", "/v0/topics/aging", {"ttl_ms": 10 * HOUR_MS})
    app.write("aging", 1)
    app.call("PUT", "/v0/topics/aging/cursors/young", {"seq": 0})
    found = attention(app, "overtaken")
    assert [(item["consumer"], item["seq"], item["by"]) for item in found] == [
        ("lost", 11, None),
        ("soon", 23, "cap"),
    ]
    assert found[0]["in_ms"] == 0
    # Two more and it is gone, at the rate of the last minutes.
    assert found[1]["in_ms"] > 0


def test_routers_and_queues_that_are_stuck(start: Start) -> None:
    app = start()
    app.call("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    app.call("PUT", "/v0/routers/stuck", {"source": "source", "dest": "full"})
    app.write("source", 1, 2, 3)
    app.call("PUT", "/v0/topics/jobs", {"type": "queue", "dead_letter": "dead", "max_deliveries": 1})
    app.write("dead", 1, 2)
    app.call("POST", "/v0/topics/full/diff")
    (blocked,) = attention(app, "blocked")
    assert blocked == {"kind": "blocked", "router": "stuck", "topic": "source", "dest": "full", "behind": 2}
    (letters,) = attention(app, "dead_letters")
    assert letters == {"kind": "dead_letters", "topic": "jobs", "dead_letter": "dead", "count": 2}


def test_a_key_sees_its_own_names_only(start: Start) -> None:
    app = start(api_keys="all,mine:read:mine.")
    everything, mine = {"Authorization": "Bearer all"}, {"Authorization": "Bearer mine"}
    for name in ("mine.t", "theirs.t"):
        app.call("PUT", f"/v0/topics/{name}", {"cap_records": 1}, **everything)
        app.call("POST", f"/v0/topics/{name}", {"records": [{"data": 1}, {"data": 2}]}, **everything)
        app.call("POST", f"/v0/topics/{name}/diff", {}, **everything)
    assert len(overview(app, **everything)["attention"]) == 2
    seen = overview(app, **mine)
    assert [row["topic"] for row in seen["topics"]] == ["mine.t"]
    assert [item["topic"] for item in seen["attention"]] == ["mine.t"]
    assert seen["attention_counts"] == {"told": 1}
    assert seen["key"]["scopes"] == ["read"]
    assert seen["key"]["prefixes"] == ["mine."]
    assert "data_dir" not in seen["server"]
    assert overview(app, **everything)["server"]["data_dir"]
