"""`topics cursors`: the lag of consumers."""

from __future__ import annotations

import threading
import time

from tests.cli.command import refused, topics
from tests.support import ServerProcess


def test_lag_of_consumers(server: ServerProcess) -> None:
    url = server.url
    server.post("/v0/topics/lagging", {"records": [{"data": n} for n in range(5)]})
    assert topics("cursors", "lagging", "--url", url).output == ""
    server.put("/v0/topics/lagging/cursors/billing", {"seq": 2})
    server.put("/v0/topics/lagging/cursors/mail", {"seq": 5})
    shown = topics("cursors", "lagging", TOPICS_URL=url)
    assert shown.code == 0
    assert [(row["consumer"], row["seq"], row["lag"]) for row in shown.rows] == [
        ("billing", 2, 3),
        ("mail", 5, 0),
    ]
    (one,) = topics("cursors", "lagging", "billing", "--json", TOPICS_URL=url).rows
    assert (one["topic"], one["consumer"], one["lag"], one["head_seq"]) == ("lagging", "billing", 3, 5)
    everywhere = topics("cursors", TOPICS_URL=url).rows
    assert {("lagging", "billing"), ("lagging", "mail")} <= {
        (row["topic"], row["consumer"]) for row in everywhere
    }


def test_what_is_left_of_a_topic(server: ServerProcess) -> None:
    """Its consumers have not read everything: nobody can say what that is."""
    url = server.url
    server.put("/v0/topics/leaving", {})
    server.put("/v0/topics/leaving/cursors/billing", {"seq": 0})
    assert topics("cursors", "leaving", "--wait", "0", TOPICS_URL=url).code == 0
    server.request("DELETE", "/v0/topics/leaving").ok()
    shown = topics("cursors", "leaving", TOPICS_URL=url)
    assert shown.code == 0
    (row,) = shown.rows
    assert (row["consumer"], row["seq"], row["lag"], row["head_seq"]) == ("billing", 0, None, None)
    assert topics("cursors", "leaving", "--wait", "0", TOPICS_URL=url).code == 1


def test_waiting_until_nothing_waits(server: ServerProcess) -> None:
    url = server.url
    late = topics("cursors", "awaited", "billing", "--wait", "0.3", TOPICS_URL=url)
    assert (late.code, late.output) == (1, "")
    assert late.errors == "topics: awaited: not everything is read after 0.3 s\n"

    def consume() -> None:
        time.sleep(0.3)  # the topic, then the consumer, appear while somebody waits for them
        server.post("/v0/topics/awaited", {"records": [{"data": 1}]})
        server.put("/v0/topics/awaited/cursors/billing", {"seq": 1})

    thread = threading.Thread(target=consume)
    thread.start()
    assert topics("cursors", "awaited", "billing", "--wait", "30", TOPICS_URL=url).code == 0
    thread.join()


def test_mistakes(server: ServerProcess) -> None:
    url = server.url
    server.post("/v0/topics/known", {"records": [{"data": 1}]})
    unknown = topics("cursors", "knwon", "--url", url)
    assert (unknown.code, "did you mean known?" in unknown.errors) == (1, True)
    assert refused("cursors", "known", "nobody", "--url", url) == 'topic "known" has no consumer "nobody"'
    assert "not the address of a server" in refused("cursors", "known", "--url", "nonsense")
