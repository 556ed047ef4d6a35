"""Defining routers and looking at both of their ends."""

from __future__ import annotations

from typing import Any

from tests.contract.server import Server, TopicHandle
from tests.support import Answer


def ask(server: Server, router: str, source: Any, dest: Any, **fields: Any) -> Answer:
    return server.send("PUT", f"/v0/routers/{router}", {"source": source, "dest": dest, **fields})


def route(source: TopicHandle, dest: TopicHandle, name: str | None = None, **fields: Any) -> str:
    name = name or f"{source.name}>{dest.name}"
    ask(source.server, name, source.name, dest.name, **fields).ok(201)
    return name


def router(server: Server, name: str) -> Any:
    return server.send("GET", f"/v0/routers/{name}").ok()


def forwarded(server: Server, name: str) -> int:
    total: int = router(server, name)["forwarded_total"]
    return total


def data(topic: TopicHandle) -> list[Any]:
    return [record["data"] for record in topic.diff(limit=1000)["records"]]


def interior_hole(source: TopicHandle, dest: TopicHandle) -> None:
    """Leaves `dest` with live records 1 and 2, a hole at 3 and 4, and a copy at 5."""
    dest.put(cap_records=2, discard="reject")
    dest.fill(2)
    source.put(cap_records=1)
    route(source, dest)
    source.fill(3)
    assert dest.state()["head_seq"] == 2
    dest.put()
