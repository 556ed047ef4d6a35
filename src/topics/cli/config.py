"""`topics config`: the settings that `topics serve` would use here, and where each of them came from.

No server is asked. What would stop the start of a server stops this, too. With a TOPIC it is about that one,
on a running server: what its configuration is, or becomes.
"""

import argparse
from typing import Any

from topics.cli.errors import print_error
from topics.cli.output import show
from topics.cli.remote.create import run_config
from topics.cli.remote.options import add_flags as add_server_flags
from topics.cli.settings import add_flags, read_settings
from topics.core import variable


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "config", help="settings of a topic, or those that serve would use", description=__doc__
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="without one: what serve would use")
    parser.add_argument("settings", nargs="*", metavar="name=value", help="the rest stays as it is")
    add_flags(parser)
    add_server_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return _of_serve(arguments) if arguments.topic is None else run_config(arguments)


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
