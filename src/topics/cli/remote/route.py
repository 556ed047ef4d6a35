"""`topics route`: routers, which copy records of one topic into another as they come."""

import argparse
from typing import Any
from urllib.parse import quote

from topics.cli.errors import DONE, REFUSED, print_error
from topics.cli.output import Output, agreed, has_terminal
from topics.cli.parser import add_actions, add_verb
from topics.cli.remote.client import Json, ask, listed
from topics.cli.remote.options import add_flags, client_for
from topics.client import Refused
from topics.client.sync import Topics
from topics.core import UserMistake, did_you_mean

_LIST = ("router", "source", "dest", "guarantee", "forwarded_total")


def add_parser(verbs: Any) -> None:
    actions = add_actions(verbs, "route", __doc__)
    add = add_verb(
        actions, "add", run_add, "Make a router. Copies begin with what comes.", text="make a router"
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument("source", metavar="SOURCE")
    add.add_argument("dest", metavar="DEST")
    add.add_argument("--tag", help="only with this tag; user:* for all that begin so")
    show = add_verb(actions, "list", run_list, "List routers, by name.", text="list routers")
    drop = add_verb(actions, "drop", run_drop, "Remove a router. Copies stay.", text="remove a router")
    drop.add_argument("name", metavar="NAME")
    drop.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (add, show, drop):
        add_flags(parser)


def run_add(arguments: argparse.Namespace) -> int:
    body: Json = {"source": arguments.source, "dest": arguments.dest}
    if arguments.tag is not None:
        body["filter"] = arguments.tag
    with client_for(arguments) as client:
        headers = (("If-None-Match", "*"),)
        told = ask(client, "PUT", _path(arguments.name), body, headers=headers, once=True)
    Output(arguments).answer(told, f"{told['router']} copies {told['source']} into {told['dest']}")
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    with client_for(arguments) as client:
        Output(arguments).rows(
            listed(client, "/v0/routers", "routers"), _LIST, "there is no router", kept=_LIST[:3]
        )
    return DONE


def run_drop(arguments: argparse.Namespace) -> int:
    if not (arguments.yes or has_terminal()):
        raise UserMistake("nobody can be asked here: say --yes")
    with client_for(arguments) as client:
        if not arguments.yes:
            found = _found(client, arguments.name)
            print_error(f"this ends the copying from {found['source']} into {found['dest']}; copies stay")
            if not agreed("drop the router?"):
                print_error("nothing was dropped")
                return REFUSED
        told = ask(client, "DELETE", _path(arguments.name), once=True)
        if not told["deleted"]:
            _found(client, arguments.name)
    Output(arguments).answer(told, f"{told['router']} is dropped")
    return DONE


def _path(name: str) -> str:
    if not name:
        raise UserMistake("the name of the router is empty")
    return f"/v0/routers/{quote(name, safe='')}"


def _found(client: Topics, name: str) -> Json:
    try:
        return ask(client, "GET", _path(name))
    except Refused as refusal:
        question = did_you_mean(name, [each["router"] for each in listed(client, "/v0/routers", "routers")])
        said = f"nothing to drop: {refusal.message}{question}"
        raise Refused(refusal.status, refusal.code, said, refusal.detail) from None
