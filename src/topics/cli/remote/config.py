"""`topics create` and `topics config`: the settings of topics, as name=value, and those of `topics serve`."""

import argparse
from typing import Any

import msgspec

from topics.cli.errors import DONE, print_error
from topics.cli.output import Output, show
from topics.cli.parser import add_verb
from topics.cli.remote.client import Json, ask, state_of, topic_path
from topics.cli.remote.options import add_flags, client_for
from topics.cli.settings import add_flags as add_settings
from topics.cli.settings import read_settings
from topics.core import ConfigBody, UserMistake, nearest, variable

_CONFIG = """`topics config`: the settings that `topics serve` would use here, and where each of them came
from.

No server is asked. What would stop the start of a server stops this, too. With a TOPIC it is about that one,
on a running server: what its configuration is, or becomes.
"""


def add_parser(verbs: Any) -> None:
    create = add_verb(verbs, "create", run_create, "Make a topic; one that is there already is a refusal.")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument(
        "settings", nargs="*", default=[], metavar="name=value", help="as in cap_records=1000"
    )
    config = add_verb(verbs, "config", run_config, _CONFIG)
    config.add_argument("topic", nargs="?", metavar="TOPIC", help="without one: what serve would use")
    config.add_argument("settings", nargs="*", metavar="name=value", help="the rest stays as it is")
    add_settings(config)
    for parser in (create, config):
        add_flags(parser)


def run_create(arguments: argparse.Namespace) -> int:
    wanted = parsed(arguments.settings)
    with client_for(arguments) as client:
        path = topic_path(arguments.topic)
        told = ask(client, "PUT", path, wanted, headers=(("If-None-Match", "*"),), once=True)
    _warn(told)
    text = f"{told['topic']} is made: a {told['config']['type']}, {told['config']['durability']}"
    Output(arguments).answer({name: value for name, value in told.items() if name != "warnings"}, text)
    return DONE


def run_config(arguments: argparse.Namespace) -> int:
    """Change the named settings of a topic; the others stay. Without a topic, show those of `serve`."""
    if arguments.topic is None:
        return _of_serve(arguments)
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


def _warn(told: Json) -> None:
    for warning in told.get("warnings") or ():
        print_error(f"note: {warning}")


# --- settings of serve --------------------------------------------------------------------------------------


def _of_serve(arguments: argparse.Namespace) -> int:
    from topics.http.app import keys_of

    configuration = read_settings(arguments)
    keys_of(configuration.settings)
    for warning in configuration.warnings:
        print_error(warning)
    rows = [
        (variable(name), origin, configuration.shown(name)) for name, origin in configuration.origins.items()
    ]
    width = max(len(name) for name, _, _ in rows)
    show(
        {name: {"value": value, "from": origin} for name, origin, value in rows},
        "\n".join(f"{name:{width}}  {origin:11}  {_text(value)}" for name, origin, value in rows),
        as_json=arguments.json,
    )
    return 0


def _text(value: object) -> str:
    """As it would be written in the environment."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unset" if value is None else str(value).encode("utf-8", "backslashreplace").decode()
