"""`topics list`, `describe`, `ledger` and `cursors`: the topics of a server, and the state of one of them."""

import argparse
import time
from typing import Any

from topics.cli.errors import DONE, REFUSED, print_error
from topics.cli.output import Output
from topics.cli.parser import add_verb
from topics.cli.remote.client import Json, ask, listed, state_of, topic_path, with_suggestion
from topics.cli.remote.options import add_flags, client_for, seconds
from topics.client import Refused
from topics.client.sync import Topics
from topics.core import UserMistake

POLL_S = 0.2
_LIST = ("topic", "type", "count", "lost", "head_seq", "earliest_seq", "bytes", "deleted", "durability")


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "list", run_list, "List topics, by name.")
    parser.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only those that begin so")
    add_flags(parser)
    for name, run, text in (
        ("describe", run_describe, "Show the state of a topic."),
        ("ledger", run_ledger, "Show which seqs of a topic cannot be read any more, and why."),
    ):
        parser = add_verb(verbs, name, run, text)
        parser.add_argument("topic", metavar="TOPIC")
        add_flags(parser)
    text = "`topics cursors`: how far the consumers of a topic have come."
    parser = add_verb(verbs, "cursors", run_cursors, text)
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="without one: all cursors of all topics")
    parser.add_argument("consumers", nargs="*", metavar="CONSUMER", help="only these")
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="for the server, and until nothing waits for any of them; exit code 1 if that takes longer",
    )
    add_flags(parser, wait=False)


def run_list(arguments: argparse.Namespace) -> int:
    prefix = arguments.prefix.removesuffix("*")
    with client_for(arguments) as client:
        rows = listed(client, "/v0/topics", "topics", prefix=prefix, detail="true")
        Output(arguments).rows(
            rows,
            _LIST,
            "there is no topic" + (f" that begins with {prefix}" if prefix else ""),
            kept=("count", "lost"),
        )
    return DONE


def run_describe(arguments: argparse.Namespace) -> int:
    with client_for(arguments) as client:
        Output(arguments).pairs(state_of(client, arguments.topic))
    return DONE


def run_ledger(arguments: argparse.Namespace) -> int:
    with client_for(arguments) as client:
        epoch = state_of(client, arguments.topic)["epoch"]
        ranges = listed(client, topic_path(arguments.topic, "ledger"), "ranges")
        rows = ({"topic": arguments.topic, "epoch": epoch, **each} for each in ranges)
        Output(arguments).rows(rows, ("from", "to", "kind"), f"{arguments.topic} lacks nothing")
    return DONE


def run_cursors(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    with client_for(arguments) as client:
        if arguments.topic is None:
            columns = ("topic", "consumer", "seq", "epoch", "lag", "age_ms")
            output.rows(
                listed(client, "/v0/cursors", "cursors"), columns, "no consumer has published a cursor"
            )
            return DONE
        deadline = time.monotonic() + (arguments.wait or 0.0)
        while True:
            state = _look(client, arguments.topic, arguments.consumers, waiting=arguments.wait is not None)
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
        print_error(f"{arguments.topic}: not everything is read after {arguments.wait:g} s")
        return REFUSED
    return DONE


def _look(client: Topics, topic: str, consumers: list[str], *, waiting: bool) -> Json:
    try:
        state = ask(client, "GET", topic_path(topic, "cursors"))
    except Refused as refusal:
        if refusal.code != "topic_not_found":
            raise
        if not waiting:
            raise with_suggestion(client, refusal, topic) from None
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
