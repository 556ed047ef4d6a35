"""Fills a server with something of everything that the console shows."""

from __future__ import annotations

from typing import Any

from tests.http.streaming import RunningApp

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"><svg onload=alert(3)>"


def records(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "data": {"order": number, "lines": [{"sku": "tea", "qty": number % 4}]},
            "node": f"till-{number % 3}",
            "tag": f"shop:{number % 5}",
            **fields,
        }
        for number in range(count)
    ]


def fill(app: RunningApp) -> None:
    def put(path: str, body: Any) -> None:
        answer = app.call("PUT", path, body)
        assert answer.status in (200, 201), answer.body

    put("/v0/topics/orders", {"cap_records": 600})
    app.write("orders", *records(1000))
    app.call("POST", "/v0/topics/orders/delete", {"match": "shop:3"})
    app.write("orders", *records(300))
    for consumer, seq in (("billing", 760), ("mailer", 1300), ("slow", 100)):
        put(f"/v0/topics/orders/cursors/{consumer}", {"seq": seq})
    put("/v0/pipelines/lake", {"kind": "archive", "state": "failed", "why": f"no space left {HOSTILE}"})
    put("/v0/pipelines/by-day", {"kind": "route", "state": "running"})
    app.call("POST", "/v0/topics/orders/diff", {"from_seq": 0})
    put("/v0/topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "jobs.dead"})
    app.write("jobs", *records(20))
    claimed = app.call("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 4}).json["claimed"]
    nack = {"node": "w", "seqs": [job["$seq"] for job in claimed], "error": "no such address"}
    app.call("POST", "/v0/topics/jobs/nack", nack)
    app.call("POST", "/v0/topics/jobs/claim", {"node": "worker-7", "max": 3, "lease_ms": 3_600_000})
    put("/v0/routers/orders-eu", {"source": "orders", "dest": "orders.eu", "filter": "shop:1"})
    put("/v0/topics/small", {"cap_records": 3, "discard": "reject"})
    put("/v0/routers/stuck", {"source": "orders.eu", "dest": "small"})
    app.write("orders", *records(60))
    put("/v0/topics/kept", {"durability": "fsync"})
    hostile = {"data": {HOSTILE: HOSTILE}, "tag": HOSTILE, "node": HOSTILE, "meta": {HOSTILE: HOSTILE}}
    app.write("hostile", hostile)
    for name in ("orders.eu", "small"):
        app.call("POST", f"/v0/topics/{name}/diff")
