"""`topics cursors`: how far the consumers of a topic have come."""

import argparse
import time
from typing import Any

from topics.cli.remote.options import add_flags, seconds, server_for
from topics.cli.remote.output import Output
from topics.cli.remote.server import Json, Server, topic_path
from topics.cli.work import DONE, REFUSED, tell
from topics.client import Refused
from topics.values import UserMistake

POLL_S = 0.2


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("cursors", help="show the lag of a topic's consumers", description=__doc__)
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="without one: all cursors of all topics")
    parser.add_argument("consumers", nargs="*", metavar="CONSUMER", help="only these")
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="for the server, and until nothing waits for any of them; exit code 1 if that takes longer",
    )
    add_flags(parser, wait=False)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    with server_for(arguments) as server:
        if arguments.topic is None:
            columns = ("topic", "consumer", "seq", "epoch", "lag", "age_ms")
            output.rows(
                server.listed("/v0/cursors", "cursors"), columns, "no consumer has published a cursor"
            )
            return DONE
        deadline = time.monotonic() + (arguments.wait or 0.0)
        while True:
            state = _look(server, arguments.topic, arguments.consumers, waiting=arguments.wait is not None)
            behind = _behind(state, arguments.consumers)
            if not behind or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
    if output.for_machines:
        for one in state["cursors"]:
            output.row({"topic": state["topic"], "head_seq": state["head_seq"], **one})
    else:
        _show(output, state)
    if behind and arguments.wait is not None:
        tell(f"{arguments.topic}: not everything is read after {arguments.wait:g} s")
        return REFUSED
    return DONE


def _look(server: Server, topic: str, consumers: list[str], *, waiting: bool) -> Json:
    try:
        state = server.ask("GET", topic_path(topic, "cursors"))
    except Refused as refusal:
        if refusal.code != "topic_not_found":
            raise
        if not waiting:
            raise server.missing(refusal, topic) from None
        return {"topic": topic, "head_seq": 0, "cursors": []}
    cursors = [one for one in state["cursors"] if not consumers or one["consumer"] in consumers]
    known = {one["consumer"] for one in cursors}
    missing = [name for name in consumers if name not in known]
    if missing and not waiting:
        raise UserMistake(f'topic "{topic}" has no consumer "{missing[0]}"')
    return {"topic": topic, "head_seq": state["head_seq"], "cursors": cursors}


def _behind(state: Json, consumers: list[str]) -> bool:
    """A consumer has not read everything, or has not been seen at all."""
    found = state["cursors"]
    return len(found) < max(len(set(consumers)), 1) or any(one["lag"] != 0 for one in found)


def _show(output: Output, state: Json) -> None:
    head = state["head_seq"]
    output.say(f"{state['topic']} is gone" if head is None else f"{state['topic']} is at seq {head:,}")
    output.rows(
        state["cursors"], ("consumer", "seq", "lag", "updated_ts"), "no consumer has published a cursor"
    )
