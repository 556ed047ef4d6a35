"""`topics create` and `topics config TOPIC`: the settings of topics, as name=value."""

import argparse
from typing import Any

import msgspec

from topics.cli.errors import DONE, print_error
from topics.cli.output import Output
from topics.cli.remote.client import Json, ask, state_of, topic_path
from topics.cli.remote.options import add_flags, client_for
from topics.core import ConfigBody, UserMistake, nearest


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "create", help="make a topic", description="Make a topic; one that is there already is a refusal."
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "settings", nargs="*", default=[], metavar="name=value", help="as in cap_records=1000"
    )
    add_flags(parser)
    parser.set_defaults(run=run_create)


def run_create(arguments: argparse.Namespace) -> int:
    wanted = parsed(arguments.settings)
    with client_for(arguments) as client:
        path = topic_path(arguments.topic)
        told = ask(client, "PUT", path, wanted, headers=(("If-None-Match", "*"),), once=True)
    _show(arguments, told)
    return DONE


def run_config(arguments: argparse.Namespace) -> int:
    """Change the named settings; the others stay."""
    wanted = parsed(arguments.settings)
    with client_for(arguments) as client:
        found = state_of(client, arguments.topic)["config"]
        if wanted:
            # The two settings depend on each other, and the old one would win.
            if "durable" in wanted and "durability" not in wanted:
                found.pop("durability", None)
            told = ask(client, "PUT", topic_path(arguments.topic), {**found, **wanted})
            _warn(told)
            found = told["config"]
    Output(arguments).pairs(found)
    return DONE


def parsed(settings: list[str]) -> Json:
    """Parse name=value. A value that is not JSON is a text."""
    known = ConfigBody.__struct_fields__
    found: Json = {}
    for each in settings:
        name, given, text = each.partition("=")
        if not given:
            raise UserMistake(f'"{each}" is no setting, which looks like cap_records=1000')
        if name not in known:
            meant = nearest(name, known)
            question = f"they are {', '.join(known)}" if meant is None else f"did you mean {meant}?"
            raise UserMistake(f'topics have no setting "{name}": {question}')
        if name in found:
            raise UserMistake(f'"{name}" is given twice')
        try:
            found[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            found[name] = text
    return found


def _show(arguments: argparse.Namespace, told: Json) -> None:
    _warn(told)
    output = Output(arguments)
    if output.for_machines:
        output.row({name: value for name, value in told.items() if name != "warnings"})
    else:
        output.say(f"{told['topic']} is made: a {told['config']['type']}, {told['config']['durability']}")


def _warn(told: Json) -> None:
    for warning in told.get("warnings") or ():
        print_error(f"note: {warning}")
