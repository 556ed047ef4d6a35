"""`topics demo`: what this log promises, shown within half a minute, on a server of its own.

In a temporary folder it writes, lets a cap take records, deletes some, kills the server, and goes on where it
was; then a job that fails too often becomes a dead letter. Every line is asserted before it is shown.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from topics.cli.errors import DONE, REFUSED, print_error
from topics.cli.output import Output
from topics.cli.parser import add_verb
from topics.cli.remote.options import add_flags
from topics.client.cursors import Cursor, FileCursor
from topics.client.records import Lost, Record, Restarted
from topics.client.sync import Topics
from topics.core import UserMistake

Item = Record[Any] | Lost | Restarted
START_WITHIN_S = 60.0
# Time to read each line.
PAUSE_S = 1.0


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "demo", run, __doc__, keeps_lines=True)
    parser.add_argument("--spark", action="store_true", help="read it with Spark at the end, too")
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.url or arguments.profile:
        print_error("note: the demo runs on a server of its own, not on the one that was named")
    # Imported first, so that a missing package is reported before anything is started.
    import_module("uvloop")
    if arguments.spark:
        import_module("pyspark")
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as folder:
        demo = _Demo(Path(folder), Output(arguments))
        try:
            demo.show(spark=arguments.spark)
        except _NotTrue as broken:
            print_error(f"this should have been true, and is not: {broken}")
            return REFUSED
        finally:
            demo.end()
    return DONE


class _NotTrue(Exception):
    pass


class _Demo:
    def __init__(self, folder: Path, output: Output) -> None:
        self._folder = folder
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Topics | None = None

    @property
    def client(self) -> Topics:
        assert self._client is not None
        return self._client

    # --- the server -------------------------------------------------------------------------------------

    def start(self) -> None:
        port_file = self._folder / "port"
        port_file.unlink(missing_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        ours = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(self._folder / "data"),
        }
        with (self._folder / "server.log").open("ab") as log:
            command = [sys.executable, "-m", "topics", "serve"]
            # Ctrl-C goes to this process only, which ends the server.
            self._process = subprocess.Popen(
                command, env=clean | ours, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_WITHIN_S
        while not port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise UserMistake(
                    f"the server did not start: {(self._folder / 'server.log').read_text()[-500:]}"
                )
            time.sleep(0.02)
        self._client = Topics("http://" + port_file.read_text().strip(), retry_s=START_WITHIN_S)
        self._client.wait_until_ready()

    def kill(self) -> None:
        assert self._process is not None
        self.client.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(START_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    # --- what is shown ----------------------------------------------------------------------------------

    def _true(self, is_true: bool, text: str, style: str = "") -> None:
        if not is_true:
            raise _NotTrue(text)
        if self._output.for_machines:
            self._output.row({"true": text})
            return
        self._output.say(text, style)
        time.sleep(PAUSE_S)

    def items(self, topic: str, cursor: Cursor | None = None, **options: Any) -> list[Item]:
        return list(self.client.topic(topic).items(cursor, **options))

    def show(self, *, spark: bool) -> None:
        self.start()
        self._true(True, f"A server runs on {self.client.url}, with its data in {self._folder / 'data'}.")
        self._loss()
        self._deletion()
        self._crash()
        self._dead_letter()
        if spark:
            self._spark()
        self._true(True, "All of this was asserted while it ran. The folder is removed now.", "green")

    def _loss(self) -> None:
        orders = self.client.topic("orders")
        orders.create(cap_records=3, durability="fsync")
        written = orders.write_many([{"order": number} for number in range(1, 6)])
        self._true(
            written.last_seq == 5,
            "Five orders are written to a topic that keeps three. Each has a seq: 1 to 5.",
        )
        lost, *records = self.items("orders")
        self._true(
            isinstance(lost, Lost) and (lost.gap_from, lost.gap_to) == (1, 2),
            "A reader that comes now is told first what it will never see: orders: lost 1-2 (cap).",
            "bold red",
        )
        self._true(_seqs(records) == [3, 4, 5], "Then it gets what is left: 3, 4 and 5.")

    def _deletion(self) -> None:
        told = self.client.topic("orders").delete(seqs=[4])
        items = self.items("orders", from_seq=2)
        is_silent = told.deleted == 1 and _seqs(items) == [3, 5] and len(items) == 2
        self._true(
            is_silent, "Order 4 is deleted. That was asked for, so readers pass over it in silence: 3, 5."
        )

    def _crash(self) -> None:
        cursor = FileCursor(self._folder / "cursor")
        for first in self.client.topic("orders").items(cursor, from_seq=2):
            if isinstance(first, Record):
                cursor.commit(first)
            break
        at = cursor.position
        is_kept = at is not None and at.seq == 3
        named = "" if at is None else f"{at.topic}@{at.seq}~{at.epoch}"
        self._true(is_kept, f"A reader has done order 3, and keeps its position: {named}.")
        self.kill()
        self.start()
        rest = self.items("orders", cursor)
        is_exact = _seqs(rest) == [5] and len(rest) == 1
        self._true(is_exact, "The server is killed and started again. The reader goes on exactly there: 5.")
        again = isinstance(self.items("orders")[0], Lost)
        self._true(again, "And a reader that starts over is told of the loss again.")

    def _dead_letter(self) -> None:
        queue = self.client.queue("jobs", max_deliveries=2, dead_letter="jobs-failed")
        queue.push({"send": "mail"})
        for _ in range(2):
            (job,) = queue.claim()
            job.nack()
        left = queue.claim()
        letters = self.items("jobs-failed")
        self._true(
            not left and len(letters) == 1,
            "A job fails as often as its queue allows, twice: it is a dead letter in jobs-failed now.",
        )

    def _spark(self) -> None:
        if not self._output.for_machines:
            self._output.say("Spark starts, which takes some seconds. What it says of itself is its own.")
        rows = rows_in_spark(self.client.url, "orders")
        self._true(
            sorted(rows) == [("record", 3, None), ("record", 5, None), ("tombstone", None, "cap")],
            "Spark reads the same topic: records 3 and 5, and a row that says what is lost.",
        )


def _seqs(items: list[Item]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Record)]


def rows_in_spark(url: str, topic: str) -> list[tuple[str, int | None, str | None]]:
    """Kind, seq and reason of everything that Spark finds in a topic."""
    from pyspark_topics.session import spark_session

    spark = spark_session("topics demo", "local[1]")
    try:
        frame = spark.read.format("topics").option("url", url).option("subscribe", topic).load()
        return [(row.kind, row.seq, row.reason) for row in frame.collect()]
    finally:
        spark.stop()
