"""Routers across restarts: definitions, copies and holes are where they were."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from functools import partial
from typing import Any

import pytest

from tests.contract.conftest import Boot
from tests.contract.routers import data, forwarded, interior_hole, route, router
from tests.contract.server import Server, TopicHandle, in_parallel
from tests.support import eventually


@pytest.mark.parametrize("cleanly", [True, False])
def test_routers_copies_and_deletes_survive_a_restart(boot: Boot, cleanly: bool) -> None:
    server = boot()
    source, dest = server.topic("source", durability="fsync"), server.topic("dest")
    source.fill(4)
    dest.write("direct")
    name = route(source, dest, filter="keep*", preserve_node=False)
    source.records(*[{"data": n, "tag": "keep" if n % 2 else "drop", "node": "n"} for n in range(8)])
    assert data(dest) == ["direct", 1, 3, 5, 7]
    dest.delete(before_seq=3)
    before, shown = dest.diff(include_tags=True), router(server, name)
    server.restart(cleanly=cleanly)
    after, shown_again = dest.diff(include_tags=True), router(server, name)
    for body in (before, shown, after, shown_again):
        del body["performance"]
    if not cleanly:  # a copy made again may carry a new commit time
        for record in before["records"] + after["records"]:
            del record["$ts"]
    assert after == before
    assert shown_again == shown
    assert shown["forwarded_total"] == 4
    source.records({"data": "new", "tag": "keep"})
    assert data(dest) == [3, 5, 7, "new"]
    assert dest.seqs() == [3, 4, 5, 6]
    assert forwarded(server, name) == 5
    server.restart(cleanly=True)
    assert dest.seqs() == [3, 4, 5, 6]
    assert dest.gap() is None


@pytest.mark.parametrize("cleanly", [True, False])
def test_holes_and_held_routers_survive_a_restart(boot: Boot, cleanly: bool) -> None:
    server = boot()
    holed = server.topic("holed")
    interior_hole(server.topic("lossy"), holed)
    assert holed.seqs() == [1, 2]
    source, full = server.topic("source"), server.topic("full", cap_records=1, discard="reject")
    name = route(source, full)
    source.fill(3)
    assert data(full) == [0]
    server.restart(cleanly=cleanly)
    assert holed.gap(2) == (3, 4, "source_trim")
    assert holed.drain()[0][-1]["$seq"] == 5
    assert data(full) == [0]
    full.put()
    assert [(record["$seq"], record["data"]) for record in full.diff()["records"]] == [(1, 0), (2, 1), (3, 2)]
    assert forwarded(server, name) == 3


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_killed_server_forgets_no_copy(boot: Boot, guarantee: str) -> None:
    server = boot()
    source, dest = server.topic("source", durability="fsync"), server.topic("dest")
    route(source, dest, guarantee=guarantee)
    for life in range(2):
        in_parallel(partial(write_until_gone, source, life), partial(kill_soon, server))
        server.start()
    written = [record["data"] for record in source.drain(limit=1000)[0]]
    copies, gaps = dest.drain(limit=1000)
    copied = [record["data"] for record in copies]
    # Only the stronger promise rules out that a copy is made twice.
    assert (copied if guarantee == "exactly_once" else list(dict.fromkeys(copied))) == written
    assert len(written) > 2
    assert gaps == []


def test_copies_that_were_read_come_back_as_they_were(boot: Boot) -> None:
    """Killed in the middle of forwarding: same seqs, same times, though the originals are gone by then.

    And what was deleted from among the copies stays deleted.
    """
    server = boot()
    source = server.topic("source")
    dests = [server.topic(f"dest-{number}", durability=("disk", "fsync")[number % 2]) for number in range(4)]
    for dest in dests:
        route(source, dest)
    seen: list[dict[int, Any]] = [{} for _ in dests]
    deleted = [0 for _ in dests]
    cursors = [0 for _ in dests]

    def read(number: int) -> None:
        client = server.client()
        path = dests[number].path
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
            while True:
                request = {"from_seq": cursors[number], "wait_ms": 1000}
                page = client.send("POST", path + "/diff", request).ok()
                seen[number].update({record["$seq"]: record for record in page["records"]})
                cursors[number] = cursor = page["next_from_seq"]
                if cursor - deleted[number] > 20:
                    client.send("POST", path + "/delete", {"before_seq": cursor - 10}).ok()
                    deleted[number] = cursor - 11
                    client.send("POST", source.path + "/delete", {"before_seq": min(cursors) + 1}).ok()

    def kill() -> None:
        eventually(lambda: all(deleted))
        server.kill()

    in_parallel(partial(write_until_gone, source, 0), *(partial(read, number) for number in range(4)), kill)
    server.start()
    for dest, known, gone in zip(dests, seen, deleted, strict=True):
        found = {record["$seq"]: record for record in dest.drain(limit=1000)[0]}
        assert min(found) > gone
        # A delete that was not answered may have been done.
        floor = dest.state()["earliest_seq"]
        assert {seq: record for seq, record in known.items() if seq >= floor}.items() <= found.items()
        numbers = [int(record["data"].partition(":")[2]) for record in found.values()]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] == min(found) - 1


def write_until_gone(topic: TopicHandle, life: int) -> None:
    client = topic.server.client()
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
        for number in itertools.count():
            client.send("POST", topic.path, {"records": [{"data": f"{life}:{number}"}]}).ok()


def kill_soon(server: Server) -> None:
    time.sleep(0.15)
    server.kill()


def test_an_ephemeral_destination_loses_its_copies_loudly(boot: Boot) -> None:
    server = boot()
    source, dest = server.topic("source"), server.topic("dest", durability="ephemeral")
    route(source, dest)
    source.fill(3)
    assert dest.state()["head_seq"] == 3
    server.restart(cleanly=True)
    assert dest.gap() == (1, 3, "cap")
    source.write("new")
    assert [(record["$seq"], record["data"]) for record in dest.diff(3)["records"]] == [(4, "new")]


def test_a_deleted_router_stays_deleted(boot: Boot) -> None:
    server = boot()
    source, dest = server.topic("source"), server.topic("dest")
    name = route(source, dest)
    source.write(1)
    assert data(dest) == [1]
    server.send("DELETE", f"/v0/routers/{name}").ok()
    server.restart(cleanly=False)
    server.send("GET", f"/v0/routers/{name}").refused(404, "router_not_found")
    source.write(2)
    assert data(dest) == [1]
