"""`topics bench`: how fast a server takes and gives records, by one client that waits for every answer.

Half of the time is for writing batches of 100 small records, half for reading them back, in a topic of its
own that is dropped at the end.
"""

import argparse
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from topics.cli.errors import DONE, print_error
from topics.cli.output import Output, progress
from topics.cli.parser import add_verb
from topics.cli.remote.client import Json, ask, topic_path
from topics.cli.remote.options import add_flags, client_for, seconds
from topics.client import TopicsError
from topics.client.sync import Topics

BATCH = 100
SECONDS = 10.0
# Above this part of the time, a busy processor is the limit.
BUSY = 0.7


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "bench", run, __doc__, keeps_lines=True)
    parser.add_argument(
        "--seconds", type=seconds, default=SECONDS, metavar="N", help=f"for so long ({SECONDS:.0f})"
    )
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    topic = f"topics-bench-{uuid.uuid4().hex}"
    with client_for(arguments) as client:
        # Refuse a key that could not remove the topic before anything is written.
        ask(client, "DELETE", topic_path(topic) + "?dry_run=true")
        try:
            told = _measure(client, topic, arguments.seconds / 2)
        finally:
            _remove(client, topic)
    output = Output(arguments)
    if output.for_machines:
        output.row(told)
    else:
        for name in ("write", "read"):
            figures = told[name]
            output.say(
                f"{name:5}  {figures['records_per_s']:>12,} records/s   "
                f"p50 {figures['p50_ms']:.2f} ms   p99 {figures['p99_ms']:.2f} ms an answer"
            )
        output.say(f"limited by {told['limited_by']}")
    return DONE


def _remove(client: Topics, topic: str) -> None:
    try:
        ask(client, "DELETE", topic_path(topic))
    except (TopicsError, KeyboardInterrupt):
        print_error(f"this may be left behind: topics drop {topic} --yes")
        raise


def _measure(client: Topics, topic: str, each_s: float) -> Json:
    record = {"data": {"sku": "AEROPRESS", "qty": 1, "note": "x" * 64}, "tag": "user:7"}
    body = msgspec.Raw(msgspec.json.encode({"records": [record] * BATCH}))
    path = topic_path(topic)

    def write() -> int:
        ask(client, "POST", path + "?return_seqs=false", body, once=True)
        return BATCH

    position = 0

    def read() -> int:
        nonlocal position
        page = ask(client, "GET", f"{path}/records?limit=1000&from_seq={position}")
        position = 0 if page["caught_up"] else page["next_from_seq"]
        return len(page["records"])

    with progress("measuring", 2 * each_s) as advance:
        began, ours, busy = time.monotonic(), time.process_time(), _processor_s(client)
        told: Json = {"write": _timed(write, each_s, advance), "read": _timed(read, each_s, advance)}
        took = time.monotonic() - began
    told["limited_by"] = _limit((time.process_time() - ours) / took, (_processor_s(client) - busy) / took)
    return told


def _timed(work: Callable[[], int], for_s: float, advance: Callable[[float], None]) -> Json:
    took: list[float] = []
    records = 0
    began = before = time.perf_counter()
    while not took or before - began < for_s:
        records += work()
        now = time.perf_counter()
        took.append(now - before)
        advance(now - before)
        before = now
    took.sort()
    return {
        "records_per_s": round(records / (before - began)),
        "p50_ms": round(took[len(took) // 2] * 1000, 3),
        "p99_ms": round(took[min(len(took) * 99 // 100, len(took) - 1)] * 1000, 3),
    }


def _processor_s(client: Topics) -> float:
    """The processor time of the server, or 0 if the key may not read it."""
    told = ask(client, "GET", "/v0/metrics", headers=(("Accept", "application/json"),))
    return float(told.get("series", {}).get("process_cpu_seconds_total", 0.0))


def _limit(client: float, server: float) -> str:
    if server >= BUSY and server >= client:
        return "the server's processor"
    if client >= BUSY:
        return "this client's processor"
    return "waiting for each answer: the network, the disk, or the processors they share"
