"""Requests made to stop the server for everyone else: each is answered, or refused, in its turn.

The watchdogs are wide. What is shown is that the work follows the bytes: before, these took minutes.
"""

from __future__ import annotations

import json

from tests.contract.conftest import Boot


def test_a_body_full_of_a_routers_keys(boot: Boot) -> None:
    """14 MB in which the key of a copy stands 300,000 times; 1 MB of it had held the loop for 104 s."""
    server = boot()
    source, dest = server.topic("source"), server.topic("dest")
    definition = {"source": "source", "dest": "dest", "guarantee": "exactly_once"}
    server.send("PUT", "/v0/routers/r", definition).ok(201)
    epoch = server.send("GET", source.path).ok()["epoch"]
    key = f"router:r:{epoch}:{epoch}:"
    data = [{"idempotency_key": f"{key}{number}"} for number in range(1, 21_000)]
    meta = {"text": [f'"idempotency_key":"{key}1"'] * 200}
    record = json.dumps({"data": data, "meta": meta}).encode()
    dest.post(b'{"records":[%b]}' % b",".join([record] * 16)).ok()
    source.write("copied all the same")
    assert server.send("GET", "/v0/routers/r").ok()["forwarded_total"] == 1
    page = server.send("POST", f"{dest.path}/diff", {"from_seq": 16}).ok()
    assert [record["data"] for record in page["records"]] == ["copied all the same"]
