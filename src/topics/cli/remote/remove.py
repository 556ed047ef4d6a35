"""`topics drop` and `topics delete`: what is gone is gone for good, so a terminal shows it first and asks."""

import argparse
from typing import Any

from topics.cli.errors import DONE, REFUSED, print_error
from topics.cli.output import Output, agreed, amount, confirmed, counted, has_terminal
from topics.cli.parser import add_verb
from topics.cli.remote.client import Json, ask, state_of, topic_path
from topics.cli.remote.options import add_flags, client_for, natural
from topics.client import Refused
from topics.client.sync import Topics
from topics.core import UserMistake

UNASKED = "nobody can be asked here: say --yes, or --dry-run to see what would be done"


def add_parser(verbs: Any) -> None:
    drop = add_verb(verbs, "drop", run_drop, "Remove a topic, its records and the routers that touch it.")
    drop.add_argument("topic", metavar="TOPIC")
    drop.add_argument("--if-empty", action="store_true", help="only without records")
    delete = add_verb(
        verbs,
        "delete",
        run_delete,
        "Remove records for good. Several choices together: those that all of them name.",
    )
    delete.add_argument("topic", metavar="TOPIC")
    delete.add_argument("--before-seq", type=natural, metavar="SEQ", help="all below it")
    delete.add_argument("--tag", help="all with this tag; user:* for all that begin so")
    delete.add_argument("--seqs", type=_seqs, metavar="2,4", help="these")
    for parser in (drop, delete):
        parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        add_flags(parser)


def _seqs(text: str) -> list[int]:
    return [natural(part.strip()) for part in text.split(",")]


def run_drop(arguments: argparse.Namespace) -> int:
    _require_consent(arguments)
    path = topic_path(arguments.topic)
    query = "if_empty=true&" if arguments.if_empty else ""
    with client_for(arguments) as client:
        if arguments.dry_run:
            state_of_dropped(client, arguments.topic)
            Output(arguments).pairs(ask(client, "DELETE", f"{path}?{query}dry_run=true"))
            return DONE
        if not arguments.yes and not _agreed_to_drop(client, arguments.topic):
            print_error("nothing was dropped")
            return REFUSED
        told = ask(client, "DELETE", f"{path}?{query}".rstrip("?&"), once=True)
        if not told["deleted"]:
            state_of_dropped(client, arguments.topic)
    Output(arguments).answer(told, f"{told['topic']} is dropped{_with_routers(told)}")
    return DONE


def state_of_dropped(client: Topics, topic: str) -> Json:
    """Return the state of a topic; raise if there is nothing to drop."""
    try:
        return state_of(client, topic)
    except Refused as refusal:
        raise Refused(
            refusal.status, refusal.code, f"nothing to drop: {refusal.message}", refusal.detail
        ) from None


def _agreed_to_drop(client: Topics, topic: str) -> bool:
    state_of_dropped(client, topic)
    would = ask(client, "DELETE", topic_path(topic) + "?dry_run=true")
    print_error(
        f"this removes {topic} with {counted(would['count'], 'record')} ({amount(would['bytes'])})"
        f"{_with_routers(would)}, for good"
    )
    return confirmed("type its name to drop it:", topic)


def _with_routers(told: Json) -> str:
    routers = told.get("routers_removed")
    return f", and with it {', '.join(routers)}" if routers else ""


def run_delete(arguments: argparse.Namespace) -> int:
    chosen = {"before_seq": arguments.before_seq, "match": arguments.tag, "seqs": arguments.seqs}
    body = {name: value for name, value in chosen.items() if value is not None}
    if not body:
        raise UserMistake("say which records: --before-seq, --tag or --seqs")
    _require_consent(arguments)
    path = topic_path(arguments.topic, "delete")
    with client_for(arguments) as client:
        state_of(client, arguments.topic)
        if arguments.dry_run:
            Output(arguments).pairs(ask(client, "POST", path, {**body, "dry_run": True}))
            return DONE
        if not arguments.yes:
            would = ask(client, "POST", path, {**body, "dry_run": True})
            print_error(f"this removes {counted(would['deleted'], 'record')} of {arguments.topic}, for good")
            if not agreed("delete them?"):
                print_error("nothing was deleted")
                return REFUSED
        told = ask(client, "POST", path, body)
    left = f"{counted(told['count'], 'record')} left"
    Output(arguments).answer(told, f"{counted(told['deleted'], 'record')} of {told['topic']} deleted, {left}")
    return DONE


def _require_consent(arguments: argparse.Namespace) -> None:
    if not (arguments.yes or arguments.dry_run or has_terminal()):
        raise UserMistake(UNASKED)
