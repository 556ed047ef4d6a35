"""Writes docs/cli-reference.md from the parsers of the verbs; with --check, says whether that is needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from topics.cli.main import VERBS, parser_of

PAGE = Path(__file__).parents[1] / "docs" / "cli-reference.md"
HEAD = """# Reference of the command

All verbs and their flags, made from the code by `scripts/command_reference.py`. What they do, with examples,
is in [cli.md](cli.md). Where a verb has all the flags that are about the server, and `--json`, they are left
out here: [cli.md](cli.md#which-server) has them.
"""
_COMMON = {"--url", "--key-file", "--profile", "--wait", "--json"}
_MANY = {"*": "[{}…]", "+": "{}…", "?": "[{}]"}


def reference() -> str:
    return "\n".join([HEAD, *(line for group, verbs in VERBS.items() for line in _group(group, list(verbs)))])


def _group(title: str, verbs: list[str]) -> Iterator[str]:
    yield f"## {title[0].upper()}{title[1:]}\n"
    for verb in verbs:
        inner = _choices(parser_of(verb))[verb]
        yield from _parser(f"topics {verb}", inner, VERBS[title][verb])


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _parser(name: str, parser: argparse.ArgumentParser, text: str) -> Iterator[str]:
    actions = _choices(parser)
    if actions:
        helps = {each.dest: each.help or "" for action in parser._actions for each in _listed(action)}
        for action, inner in actions.items():
            yield from _parser(f"{name} {action}", inner, helps[action])
        return
    words = [_positional(action) for action in parser._actions if not action.option_strings]
    yield f"### {name}\n"
    yield f"`{' '.join([name, *words])}`: {text[0].lower()}{text[1:]}\n"
    given = [
        action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"
    ]
    has_common = {flag for action in given for flag in action.option_strings} >= _COMMON
    rows = [
        (_named(action), action.help or "")
        for action in given
        if not (has_common and _COMMON & set(action.option_strings))
        and (action.option_strings or action.help)
    ]
    if rows:
        yield "| | |\n|---|---|"
        yield from (f"| `{named}` | {help_text} |" for named, help_text in rows)
        yield ""


def _listed(action: argparse.Action) -> list[argparse.Action]:
    return action._choices_actions if isinstance(action, argparse._SubParsersAction) else []


def _named(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest).replace("|", "\\|")
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    value = "\\|".join(map(str, action.choices)) if action.choices else action.metavar or action.dest.upper()
    return f"{', '.join(action.option_strings)} {value}"


def _positional(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return _MANY.get(str(action.nargs), "{}").format(name)


def main() -> int:
    wanted = reference()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            print("docs/cli-reference.md is not what the code says: run scripts/command_reference.py")
            return 1
        return 0
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
