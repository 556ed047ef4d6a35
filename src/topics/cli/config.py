"""`topics config`: the settings that `topics serve` would use here, and where each of them came from.

No server is asked. What would stop the start of a server stops this, too.
"""

import argparse
from typing import Any

from topics.cli.settings import add_flags, read_settings
from topics.cli.work import add_json, show, tell
from topics.values import variable


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("config", help="show the settings that serve would use", description=__doc__)
    add_flags(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from topics.http.app import keys_of

    configuration = read_settings(arguments)
    keys_of(configuration.settings)
    for warning in configuration.warnings:
        tell(warning)
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
