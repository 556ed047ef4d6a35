"""Kill a busy server again and again, and hold what it shows afterwards against what it had promised.

    python -m tests.kill.rounds [--rounds 200] [--seed 1] [--spark]

Every round: clients of all kinds at full speed, SIGKILL at a random moment, restart, compare. With `--spark`
a query and pipelines run all the time, and are killed, too; what they wrote is compared at the end. SIGINT
makes the round that is running the last one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet

from tests.kill.checks import Found, settle
from tests.kill.clients import Caller, Client, Deleter, PlainWriter, Watcher, Worker, Writer
from tests.kill.known import Known, Topic
from tests.kill.pipelines import LAST_RUN_S, Pipelines
from tests.support import ServerProcess, free_port

# Small runs and a small hot budget: sealing, dropping and snapshots happen all the time.
SETTINGS = {"TOPICS_SEGMENT_MAX_EVENTS": "200", "TOPICS_HOT_BYTES": "65536"}
CONFIGS: dict[str, dict[str, object]] = {
    "synced": {"durability": "fsync"},
    "plain": {"durability": "disk"},
    "quick": {"durability": "memory"},
    "fleeting": {"durability": "ephemeral"},
    "bounded": {"durability": "disk", "cap_records": 300},
    "pruned": {"durability": "fsync"},
    "single": {"durability": "disk"},
    "synced-single": {"durability": "fsync"},
    "jobs": {"type": "queue", "durability": "fsync", "leases_durable": True},
    "chores": {"type": "queue", "durability": "disk"},
}
# Of which all records come alone.
SINGLE = ("single", "synced-single")
SOURCE, COPY = "plain", "copy"
# For whatever has to start or to end, on a machine that four JVMs share with others.
PATIENCE_S = 300.0


def known_topics() -> Known:
    topics = {name: Topic(capped="cap_records" in config) for name, config in CONFIGS.items()}
    topics["fleeting"].ephemeral = True
    return Known(topics)


def make_clients(server: ServerProcess, known: Known, seed: str) -> list[Client]:
    clients: list[Client] = []

    def add(kind: type[Client], name: str, **attributes: object) -> None:
        client = kind(name, server, known, seed)
        for attribute, value in attributes.items():
            setattr(client, attribute, value)
        clients.append(client)

    for topic in CONFIGS:
        if topic in SINGLE:
            for number in range(3):
                add(PlainWriter, f"writer-{topic}-{number}", topic=topic)
        else:
            add(Writer, f"writer-{topic}", topic=topic)
    add(Writer, "writer-synced-2", topic="synced")
    add(Deleter, "deleter", topic="pruned")
    for queue in ("jobs", "chores"):
        add(Worker, f"worker-{queue}", topic=queue)
    add(Watcher, "watcher", topics=("synced", "plain", "quick"))
    return clients


class SparkReader:
    """A query in a process of its own, over the whole run."""

    def __init__(self, url: str, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.spark_reader", url, SOURCE, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"started\n"

    def compare(self, source: dict[int, str]) -> list[str]:
        """Every record of the source exactly once."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(LAST_RUN_S):
            return ["the Spark query failed"]
        table = pyarrow.parquet.read_table(self._directory / "rows", columns=["seq", "data", "kind"])
        rows = table.to_pylist()
        lost = [row for row in rows if row["kind"] != "record"]
        copied = {row["seq"]: row["data"] for row in rows if row["kind"] == "record"}
        trouble = [f"the Spark query saw a loss: {row}" for row in lost]
        if len(copied) != len(rows) - len(lost):
            trouble.append("the Spark query has records twice")
        if copied != source:
            trouble.append(f"the Spark query has {len(copied)} records, its source {len(source)}")
        return trouble

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)


class Rounds:
    def __init__(self, directory: Path, seed: int, *, spark: bool = False) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        # The same port in every life: a Spark query keeps its address.
        self.server = ServerProcess(directory, TOPICS_PORT=str(free_port()), **SETTINGS)
        self.server.patience_s = PATIENCE_S
        self.server.start()
        self.known = known_topics()
        for name, config in CONFIGS.items():
            self.server.put(f"/v0/topics/{name}", config)
        router = {"source": SOURCE, "dest": COPY, "guarantee": "exactly_once"}
        self.server.put("/v0/routers/copier", router)
        self.copies: dict[int, str] = {}
        self.spark = SparkReader(self.server.url, directory / "spark") if spark else None
        self.pipelines = Pipelines(self.server.url, SOURCE, directory / "pipelines", seed) if spark else None

    def run(self, number: int) -> list[str]:
        """One round; what is wrong afterwards."""
        if number == 2 and self.pipelines is not None:
            # The first gave them something to do. Rounds before Spark has started prove nothing.
            self.pipelines.wait_until_all_move(PATIENCE_S)
        clients = make_clients(self.server, self.known, f"{self.seed}/{number}")
        for client in clients:
            client.start()
        time.sleep(self.random.uniform(0.05, 0.9))
        self.server.kill()
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(PATIENCE_S)
        stuck = [f"{client.name} does not end" for client in clients if client.is_alive()]
        self.server.start()
        if self.pipelines is not None:
            self.pipelines.disturb()
        caller = Caller(self.server)
        try:
            return stuck + settle(caller, self.known) + self._compare_copies(caller)
        finally:
            caller.close()

    def _compare_copies(self, caller: Caller) -> list[str]:
        """Every record of the source once, in order, and where it was before."""
        copies = {seq: payload for seq, (payload, _) in Found(caller, COPY).records.items()}
        source = list(self.known.topics[SOURCE].records.values())
        trouble = []
        if list(copies.values()) != source:
            trouble.append(f"{COPY} has {len(copies)} records, its source {len(source)}")
        if not self.copies.items() <= copies.items():
            trouble.append(f"{COPY} changed what it had shown")
        self.copies = copies
        return trouble

    def close(self) -> list[str]:
        source = self.known.topics[SOURCE].records
        trouble = [] if self.spark is None else self.spark.compare(source)
        if self.pipelines is not None:
            caller = Caller(self.server)
            try:
                trouble += self.pipelines.compare(caller, source)
                print(f"{self.pipelines.kills} pipelines killed; {self.pipelines.compared}", flush=True)
            finally:
                caller.close()
        self.stop()
        return trouble

    def stop(self) -> None:
        if self.spark is not None:
            self.spark.close()
        if self.pipelines is not None:
            self.pipelines.close()
        self.server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill.rounds")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--spark", action="store_true", help="with a Spark query and pipelines")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="topics-kill-") as directory:
        rounds = Rounds(Path(directory), chosen.seed, spark=chosen.spark)
        enough: list[int] = []
        signal.signal(signal.SIGINT, lambda number, _: enough.append(number))
        for number in range(1, chosen.rounds + 1):
            try:
                trouble = rounds.run(number)
                last = number == chosen.rounds or bool(enough)
                if last:
                    trouble += rounds.close()
            except Exception:
                trouble = traceback.format_exc().splitlines()
            live = sum(len(topic.records) for topic in rounds.known.topics.values())
            print(
                f"round {number}: {rounds.known.answered} requests answered, {live} records live", flush=True
            )
            if trouble:
                rounds.stop()
                print(*trouble[:50], sep="\n")
                print((Path(directory) / "server.log").read_text()[-5000:])
                return 1
            if last:
                break
    print(f"{number} rounds: nothing acknowledged was lost, nothing went missing unannounced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
