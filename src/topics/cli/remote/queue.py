"""`topics queue`: jobs, from the hand of a person: push, claim, ack, nack, peek, leases, redrive."""

import argparse
import os
from typing import Any

import msgspec

from topics.cli.errors import DONE, REFUSED, print_error
from topics.cli.output import Output, counted
from topics.cli.parser import Parser, add_actions, add_verb
from topics.cli.remote.client import Json, ask, listed, state_of, topic_path, with_suggestion
from topics.cli.remote.formats import printer
from topics.cli.remote.options import add_flags, client_for, milliseconds, natural, positive
from topics.cli.remote.write import add_input, append
from topics.client import Refused
from topics.client.operations.queueing import user_at_host
from topics.client.records import Lost, Record
from topics.client.sync import Topics
from topics.core import FIELDS, NODE_AT

PEEK = 10
_JOB = ("seq", "deliveries", "deadline", "tag", "data")
_LEASE = ("seq", "node", "lease_id", "deadline", "deliveries")


def add_parser(verbs: Any) -> None:
    actions = add_actions(verbs, "queue", __doc__)

    def action(name: str, text: str, run: Any) -> Parser:
        return add_verb(actions, name, run, text + ".", text=text)

    push = action("push", "Add jobs; a queue that is not there is made", run_push)
    add_input(push)
    claim = action("claim", "Lease jobs", run_claim)
    ack = action("ack", "Jobs are done", run_ack)
    nack = action("nack", "Give jobs back", run_nack)
    peek = action("peek", "Show jobs, without taking them", run_peek)
    leases = action("leases", "Show who has which job", run_leases)
    redrive = action("redrive", "Send dead letters back to where they came from", run_redrive)
    for parser in (claim, ack, nack, peek, leases, redrive):
        parser.add_argument("topic", metavar="TOPIC")
    for parser in (ack, nack):
        parser.add_argument("seqs", nargs="+", type=natural, metavar="SEQ")
    for parser in (claim, ack, nack):
        parser.add_argument("--node", default=None, help="the worker (user@host)")
    for parser in (claim, peek, redrive):
        parser.add_argument("--max", type=positive, metavar="N", help="at most so many")
    claim.add_argument("--lease", type=milliseconds, metavar="60s", help="for so long (as the queue says)")
    nack.add_argument("--error", metavar="TEXT", help="why; it is kept with the job")
    nack.add_argument("--delay", type=milliseconds, metavar="10s", help="nobody gets them before")
    redrive.add_argument("--tag", help="only with this tag; user:* for all that begin so")
    redrive.add_argument("--into", metavar="TOPIC", help="another queue than they came from")
    for parser in (push, claim, ack, nack, peek, leases, redrive):
        add_flags(parser)


def worker() -> str:
    """This user on this machine: the same for every command, so that one may settle jobs of another."""
    name = user_at_host(str(os.getuid())).encode()
    return name[: FIELDS[NODE_AT].max_bytes].decode("utf-8", "ignore")


def _node(arguments: argparse.Namespace) -> str:
    """The worker. An empty name is sent, so that the server refuses it."""
    return worker() if arguments.node is None else str(arguments.node)


def run_push(arguments: argparse.Namespace) -> int:
    config: Json | None = None
    with client_for(arguments) as client:
        try:
            found = ask(client, "GET", topic_path(arguments.topic) + "?touch=false")
        except Refused as refusal:
            if refusal.code != "topic_not_found":
                raise
            config = {"type": "queue"}
        else:
            if found["type"] != "queue":
                said = f'"{arguments.topic}" is a log: topics write appends to it'
                raise Refused(409, "not_a_queue", said, {"topic": arguments.topic})
    return append(arguments, config)


def run_claim(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    with client_for(arguments) as client:
        told = _ask(
            client, arguments, "claim", node=_node(arguments), max=arguments.max, lease_ms=arguments.lease
        )
        gap = told.get("tombstone")
        if gap is not None:
            epoch = state_of(client, arguments.topic)["epoch"]
            lost = (gap["gap_from"], gap["gap_to"], gap["reason"], gap["missed_estimate"])
            printer(output, None, many=True)(Lost(arguments.topic, epoch, *lost))
    rows = [{"topic": arguments.topic, **job} for job in told["claimed"]]
    output.rows(rows, _JOB, f"no job is ready in {arguments.topic}", kept=("data",))
    return DONE


def run_ack(arguments: argparse.Namespace) -> int:
    return _finish(arguments, "ack")


def run_nack(arguments: argparse.Namespace) -> int:
    return _finish(arguments, "nack", error=arguments.error, delay_ms=arguments.delay)


def _finish(arguments: argparse.Namespace, action: str, **more: Any) -> int:
    node = _node(arguments)
    with client_for(arguments) as client:
        told = _ask(client, arguments, action, node=node, seqs=arguments.seqs, **more)
    text = f"{counted(told[action + 'ed'], 'job')} {action}ed, {told['ready']:,} ready"
    Output(arguments).answer(told, text)
    for seqs, why in ((told["skipped"], f"not held by {node}"), (told.get("lost") or [], "lost")):
        if seqs:
            print_error(f"{why}: {', '.join(map(str, seqs))}")
    return REFUSED if told["skipped"] or told.get("lost") else DONE


def run_peek(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    left = PEEK if arguments.max is None else arguments.max
    show = printer(output, None, many=False)
    with client_for(arguments) as client:
        _require_queue(client, arguments.topic)
        for item in client.topic(arguments.topic).items(raw=True):
            # Losses are reported to workers that claim.
            if not left:
                break
            if isinstance(item, Record):
                show(item)
                left -= 1
    return DONE


def run_leases(arguments: argparse.Namespace) -> int:
    with client_for(arguments) as client:
        _require_queue(client, arguments.topic)
        leases = listed(client, topic_path(arguments.topic, "leases"), "leases")
        rows = ({"topic": arguments.topic, **lease} for lease in leases)
        Output(arguments).rows(rows, _LEASE, f"no job of {arguments.topic} is leased", kept=("node",))
    return DONE


def run_redrive(arguments: argparse.Namespace) -> int:
    wanted = {"max": arguments.max, "match": arguments.tag, "into": arguments.into}
    with client_for(arguments) as client:
        told = _ask(client, arguments, "redrive", **wanted)
    skipped = f", skipped: {msgspec.json.encode(told['skipped']).decode()}" if told.get("skipped") else ""
    Output(arguments).answer(told, f"{counted(told['moved'], 'job')} moved{skipped}")
    return DONE


def _ask(client: Topics, arguments: argparse.Namespace, action: str, **given: Any) -> Json:
    """Send a request once: a repeated claim would take other jobs, and a repeated ack find none."""
    body = {name: value for name, value in given.items() if value is not None}
    try:
        return ask(client, "POST", topic_path(arguments.topic, action), body, once=True)
    except Refused as refusal:
        raise with_suggestion(client, refusal, arguments.topic) from None


def _require_queue(client: Topics, topic: str) -> None:
    if state_of(client, topic)["type"] != "queue":
        raise Refused(409, "not_a_queue", f'"{topic}" is a log', {"topic": topic})
