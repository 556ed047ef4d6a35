"""Writes the fixtures of the first edition: what the code before the great refactoring left on disk.

    PYTHONPATH=src:. python tests/golden/edition1/make.py [data] [spark]

It was run once, before the commit that added the fixtures, with PySpark, delta-rs and Arrow as pinned there,
and is kept to show how they came about. Do not run it again: files that a later version writes prove nothing
about those that exist already. Everything is done by real processes, `topics serve` and `topics pipeline`,
over HTTP and through Spark's public API, in a folder that no other machine has (`/tmp/topics-edition1`): the
notes about the cold directory and about loaded files contain absolute paths.

    stopped/   a data directory and its cold one, after a clean stop; `expected.json` is what the server said
               about everything just before
    killed/    the same, made by the same requests, but the server was killed in the end; `rebooted.json` is
               what the next one said when it was told that the machine had been restarted in between
    backups/   a backup of that server, taken while it ran
    spark/     a data directory and what Spark and pipelines keep about it, all of one moment

The clock of the servers of the first three is ahead by decades (see AHEAD). A server never lets its clock
fall back, so on such a directory time stands still, and leases, delays and TTLs do not run out while the
fixture grows older.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.golden.edition1.reading import EDITION, Facts, copied, seen
from tests.support import ServerProcess, eventually
from tests.support.arrow import arrow_stream

WORK = Path("/tmp/topics-edition1")
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
# 2096-10-02 and a little: far enough for any reader of this.
AHEAD_NS = 70 * 365 * 86_400 * 1_000_000_000
AHEAD = f"""
import sys, time
real = time.time_ns
time.time_ns = lambda: real() + {AHEAD_NS}
from topics.cli.main import main
sys.exit(main(["serve"]))
"""
DAY_MS = 86_400_000


class Server(ServerProcess):
    def send(self, topic: str, *records: Any, **more: Any) -> Any:
        """Values become records with that `data`; dicts with a `data` key are records already."""
        full = [r if isinstance(r, dict) and "data" in r else {"data": r} for r in records]
        # Text as it is, and not as escapes: records are kept as they were sent.
        body = json.dumps({"records": full, **more}, ensure_ascii=False).encode()
        return self.ok("POST", f"/v0/topics/{topic}", body)

    def topic(self, name: str, **config: Any) -> None:
        self.ok("PUT", f"/v0/topics/{name}", config)

    def delete(self, name: str, **selector: Any) -> None:
        self.ok("POST", f"/v0/topics/{name}/delete", selector)

    def stage(self, stage: str, **columns: list[Any]) -> None:
        self.ok("PUT", f"/v0/stages/{stage}/parts/0", arrow_stream(columns), ARROW)

    def commit(self, stage: str, identity: str, batch: int) -> None:
        body = {"identity": {"id": identity, "batch": batch}, "parts": ["0"]}
        self.ok("POST", f"/v0/stages/{stage}/commit", body)

    def ok(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        answer = self.request(method, path, body, headers)
        assert answer.status < 300, (path, answer.text)
        return answer.json

    def queue(self, verb: str, node: str, **more: Any) -> Any:
        return self.ok("POST", f"/v0/topics/jobs/{verb}", {"node": node, **more})


# --- a data directory with everything in it -----------------------------------------------------------------


class AheadServer(Server):
    command = (sys.executable, "-c", AHEAD)

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        super().__init__(
            directory,
            TOPICS_COLD_DIR=str(directory / "cold"),
            # Small files, so that a few records fill some of them and the old ones move.
            TOPICS_SEGMENT_MAX_EVENTS="8",
            TOPICS_HOT_RETAIN_SEGMENTS="1",
        )


def first_life(server: AheadServer) -> None:
    """Ends with a kill: what was in memory only is lost, and announced from then on."""
    server.topic("orders", durability="fsync", priority=7)
    server.ok("PUT", "/v0/routers/orders>vip", {"source": "orders", "dest": "vip", "filter": "vip:*"})
    stamped = {"source": "vip", "dest": "vip-copy", "guarantee": "exactly_once", "preserve_node": False}
    server.ok("PUT", "/v0/routers/vip>copy", stamped)
    for n in range(1, 25):
        tag = ("vip:1", "user:7", "user:9", None)[n % 4]
        record = {
            "data": {"sku": f"Größe-{n}", "qty": n},
            "meta": {"trace": f"{n:x}"},
            "node": f"web-{n % 2}",
        }
        server.send("orders", record if tag is None else {**record, "tag": tag})
    for n in range(5):
        server.send("numbers", *range(n * 8, n * 8 + 8))
    server.topic("recent", cap_records=3)
    server.send("recent", 1, 2, 3, 4, 5)
    server.topic("expired", ttl_ms=50)
    server.send("expired", "a", "b")
    server.topic("lasting", ttl_ms=3_600_000)
    server.send("lasting", "still there")
    server.topic("ram", durability="memory")
    server.send("ram", None, True, 1.5, "text", [1], {"a": {}})
    server.topic("fleeting", durability="ephemeral")
    server.send("fleeting", 1, 2, 3)
    # The second life of this name.
    server.send("again", "first life")
    server.ok("DELETE", "/v0/topics/again")
    server.send("again", "second life")
    # A source that loses records while the destination has no room for them: a hole inside the destination.
    server.topic("narrow", cap_records=2)
    server.topic("full", cap_records=3, discard="reject")
    server.ok("PUT", "/v0/routers/narrow>full", {"source": "narrow", "dest": "full"})
    server.send("narrow", 1, 2)
    server.ok("POST", "/v0/topics/full/diff", {})
    server.send("narrow", 3, 4)
    server.ok("POST", "/v0/topics/full/diff", {})
    server.send("narrow", 5, 6, 7)
    server.delete("full", before_seq=2)
    server.stage("load-1", topic=["numbers", "audit"], data=["-1", '"x"'], tag=[None, "t"])
    server.commit("load-1", "nightly", 1)
    server.send("purged", *({"data": f"secret {n}", "tag": "t" if n % 2 else "u"} for n in range(6)))
    server.delete("purged", match="t")
    eventually(lambda: len(list((server.directory / "cold").glob("*.segment"))) >= 3)
    purge = server.ok("POST", "/v0/admin/purge", {"topics": ["purged"]})["purge"]
    eventually(lambda: server.get(f"/v0/admin/purge/{purge}")["state"] == "done")


def second_life(server: AheadServer) -> None:
    """Deletions in sealed files; a clean stop makes the first snapshot that knows of them."""
    server.delete("orders", match="user:7")
    server.delete("numbers", before_seq=5)
    server.send("fleeting", 4)
    queue = {"type": "queue", "leases_durable": True, "lease_ms": DAY_MS}
    server.topic("jobs", **queue, max_deliveries=2, dead_letter="jobs-dead")
    server.send("jobs", *"abcdefgh")
    server.ok("PUT", "/v0/topics/orders/cursors/billing", {"seq": 3})
    server.ok("PUT", "/v0/topics/orders/cursors/gone", {"seq": 4})


def third_life(server: AheadServer) -> None:
    """A second snapshot that knows of them: the flags in the files are turned when this ends."""
    server.ok("PUT", "/v0/topics/numbers/cursors/lake", {"seq": 20})
    # Delivered as often as allowed, so the next claim makes it a dead letter; and one that is done.
    for _ in range(2):
        server.queue("claim", "w1", max=2)
        server.queue("nack", "w1", seqs=[1, 2])
    server.queue("claim", "w1", max=1)
    server.queue("ack", "w1", seqs=[3])


def last_life(server: AheadServer) -> None:
    """In the killed twin, all of this is in the journal only."""
    server.queue("claim", "w1", max=2)
    server.queue("claim", "w2", max=1)
    server.queue("nack", "w2", seqs=[6], delay_ms=DAY_MS)
    server.queue("extend", "w1", seqs=[5], lease_ms=DAY_MS // 2)
    server.delete("orders", match=["tag", "Glob", "user:9*"], before_seq=15)
    server.ok("PUT", "/v0/topics/orders/cursors/billing", {"seq": 9})
    server.ok("DELETE", "/v0/topics/orders/cursors/gone")
    server.stage("load-2", topic=["numbers", "new"], data=["-2", "[2]"], node=["n", None])
    server.commit("load-2", "nightly", 2)
    # Staged and never committed.
    server.stage("waiting", topic=["numbers"], data=["-3"], meta=['{"m":1}'])
    server.send("orders", {"data": "the last", "tag": "vip:2"})
    server.topic("recent", cap_records=2)
    server.send("recent", 6)
    server.send("ram", "more")
    server.send("fleeting", 5)


def make_data(name: str, *, kill: bool) -> None:
    server = AheadServer(WORK / name)
    for life, end in ((first_life, server.kill), (second_life, server.stop), (third_life, server.stop)):
        server.start()
        life(server)
        end()
    server.start()
    last_life(server)
    # Not in the expectations at once: what has expired has to go first, and routers work in the background.
    time.sleep(0.5)
    expected = seen(server)
    if not kill:
        run("backup", WORK / "backups", "--url", server.url)
    assert seen(server) == expected
    (server.kill if kill else server.stop)()
    keep(server.data_dir, EDITION / name / "data")
    keep(server.directory / "cold", EDITION / name / "cold")
    note(f"{name}/expected.json", expected)


def make_rebooted() -> None:
    server = copied("killed", WORK / "rebooted", rebooted=True).start()
    time.sleep(0.5)
    facts = seen(server)
    assert seen(server) == facts
    server.stop()
    note("killed/rebooted.json", facts)


def note(name: str, facts: Facts) -> None:
    (EDITION / name).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def run(*arguments: object) -> None:
    process = launch(*arguments)
    assert process.wait() == 0, arguments


def launch(*arguments: object) -> subprocess.Popen[bytes]:
    """The command line, in the folder that no other machine has."""
    path = os.pathsep.join(os.path.abspath(part) for part in os.environ["PYTHONPATH"].split(os.pathsep))
    command = [sys.executable, "-m", "topics.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, cwd=WORK, env=os.environ | {"PYTHONPATH": path})


def keep(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


# --- what Spark and pipelines keep --------------------------------------------------------------------------

PIPELINES = """\
state = "state"

[pipeline.lake]
kind = "archive"
topics = ["orders", "recent", "brief"]
table = "lake/shop"

# State of which every later row depends on all earlier ones.
[pipeline.sales]
kind = "route"
topics = ["orders", "recent"]
into = "sales"
schema = "sku STRING, qty INT"
mode = "update"
sql = "SELECT data.sku, sum(data.qty) AS qty, count(*) AS orders FROM records GROUP BY data.sku"

# State that waits for the watermark, which is part of the checkpoint too.
[pipeline.hours]
kind = "route"
topics = ["orders"]
into = "hours"
schema = "sku STRING, qty INT"
watermark = "1 hour"
sql = "SELECT data.sku, sum(data.qty) AS qty FROM records GROUP BY window(ts, '1 hour'), data.sku"

[pipeline.again]
kind = "replay"
table = "lake/shop"
topic = "orders"
into = "orders-again"
rate = 1

[pipeline.history]
kind = "load"
files = ["exports/*.csv"]
into = "history"
"""
FOLLOWING = ("lake", "sales", "hours")


def order(n: int) -> Facts:
    data = {"sku": "ABC"[n % 3], "qty": n}
    return (
        {"data": data, "tag": f"user:{n % 2}", "node": "web", "meta": {"n": n}} if n % 4 else {"data": data}
    )


def make_spark() -> None:
    """Two rounds that everything reads, and a third that nothing has read yet.

    In the third, `recent` is left alone: what the last batch of a route has read has to be there still, if
    that batch is to be repeated. `brief` loses records then, too.
    """
    server = Server(WORK / "spark")
    server.directory.mkdir(parents=True)
    (WORK / "exports").mkdir()
    (WORK / "exports" / "a.csv").write_text("sku,qty\nA,1\nB,2\n")
    (WORK / "pipelines.toml").write_text(PIPELINES)
    server.start()
    os.environ["TOPICS_URL"] = server.url
    for name in ("recent", "brief"):
        server.topic(name, cap_records=3)
        server.send(name, *map(order, range(1, 6)))
    server.send("orders", *map(order, range(1, 7)))
    run_pipelines(*FOLLOWING, "history")
    run_streams(server.url)
    server.send("orders", *map(order, range(7, 11)))
    for name in ("recent", "brief"):
        server.send(name, *map(order, range(6, 11)))
    run_pipelines(*FOLLOWING)
    run_streams(server.url)
    interrupt_replay()
    server.send("orders", *map(order, range(11, 14)))
    server.send("brief", *map(order, range(11, 16)))
    server.stop()
    keep(server.data_dir, EDITION / "spark" / "data")
    for name in ("lake", "state", "checkpoints", "exports"):
        keep(WORK / name, EDITION / "spark" / name)
    shutil.copy(WORK / "pipelines.toml", EDITION / "spark")
    (EDITION / "spark" / "state" / "spark.log").unlink(missing_ok=True)


def run_pipelines(*names: str) -> None:
    """One after the other, which a busy machine takes more easily."""
    for name in names:
        run("pipeline", "run", "pipelines.toml", name, "--once")


def run_streams(url: str) -> None:
    """Plain streams: one that Python reads, and one from topic to topic, in batches of a few records."""
    from pyspark_topics.session import spark_session

    source = {"url": url, "subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    frame = spark_session("edition 1", "local[2]").readStream.format("topics").options(**source)
    reading = frame.load().writeStream.foreachBatch(lambda rows, _: rows.collect() and None)
    copying = frame.option("consumer", "copy").load().where("kind = 'record'").select("data", "tag", "meta")
    copying = copying.writeStream.format("topics").options(url=url, topic="orders-copy")
    for name, writer in (("read", reading), ("copy", copying)):
        writer = writer.option("checkpointLocation", str(WORK / "checkpoints" / name))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)


def interrupt_replay() -> None:
    """It is slow, and told to end when it is somewhere in the middle."""
    notes = WORK / "state" / "again" / "replay.json"
    process = launch("pipeline", "run", "pipelines.toml", "again")
    eventually(lambda: notes.exists() and json.loads(notes.read_text())["at"] >= 3, 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert not json.loads(notes.read_text())["finished"]


def main(parts: list[str]) -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    if "data" in parts:
        make_data("stopped", kill=False)
        make_data("killed", kill=True)
        make_rebooted()
        keep(WORK / "backups", EDITION / "backups")
    if "spark" in parts:
        make_spark()
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main(sys.argv[1:] or ["data", "spark"])
