"""`topics list`, `topics describe`, `topics ledger`: what topics there are, and what one of them lacks."""

import argparse
from collections.abc import Iterator
from typing import Any

from topics.cli.remote.options import add_flags, server_for
from topics.cli.remote.output import Output
from topics.cli.remote.server import Json, Server, topic_path
from topics.cli.work import DONE
from topics.client import Refused

_LIST = ("topic", "type", "count", "lost", "head_seq", "earliest_seq", "bytes", "deleted", "durability")


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("list", help="list topics", description="List topics, by name.")
    parser.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only those that begin so")
    add_flags(parser)
    parser.set_defaults(run=run_list)
    parser = verbs.add_parser(
        "describe", help="show the state of a topic", description="Show the state of a topic."
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_flags(parser)
    parser.set_defaults(run=run_describe)
    parser = verbs.add_parser(
        "ledger",
        help="show which seqs a topic lacks, and why",
        description="Show which seqs of a topic cannot be read any more, and why.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_flags(parser)
    parser.set_defaults(run=run_ledger)


def run_list(arguments: argparse.Namespace) -> int:
    prefix = arguments.prefix.removesuffix("*")
    with server_for(arguments) as server:
        rows = detailed(server, prefix)
        Output(arguments).rows(
            rows,
            _LIST,
            "there is no topic" + (f" that begins with {prefix}" if prefix else ""),
            kept=("count", "lost"),
        )
    return DONE


def detailed(server: Server, prefix: str = "") -> Iterator[Json]:
    """Topics with all that a list can say of them."""
    try:
        yield from server.listed("/v0/topics", "topics", prefix=prefix, detail="true")
    except Refused as refusal:
        # A server that does not know of details yet.
        if "detail" not in refusal.detail.get("unknown", ()):
            raise
        yield from server.listed("/v0/topics", "topics", prefix=prefix)


def run_describe(arguments: argparse.Namespace) -> int:
    with server_for(arguments) as server:
        Output(arguments).pairs(state_of(server, arguments.topic))
    return DONE


def state_of(server: Server, topic: str) -> Json:
    """Without counting as a reader of it. One that is not there is told with the name that was meant."""
    try:
        return server.ask("GET", topic_path(topic) + "?touch=false")
    except Refused as refusal:
        raise server.missing(refusal, topic) if refusal.code == "topic_not_found" else refusal from None


def run_ledger(arguments: argparse.Namespace) -> int:
    with server_for(arguments) as server:
        epoch = state_of(server, arguments.topic)["epoch"]
        ranges = server.listed(topic_path(arguments.topic, "ledger"), "ranges")
        rows = ({"topic": arguments.topic, "epoch": epoch, **each} for each in ranges)
        Output(arguments).rows(rows, ("from", "to", "kind"), f"{arguments.topic} lacks nothing")
    return DONE
