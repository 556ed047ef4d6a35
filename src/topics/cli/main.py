"""`topics`: finds the verb and lets it answer.

A verb is imported when it is asked for, so that help and version need neither the server nor the client.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import topics

DESCRIPTION = "An append-only event log that never loses quietly."
EXIT_CODES = (
    "exit codes: 0 done, 1 refused or declined, 2 mistake, 3 loss (--fail-on-loss), 4 server unreachable, "
    "130 Ctrl-C"
)
# All verbs, as they are told to a person who has not named one.
VERBS = {
    "server": {
        "serve": "run the server",
        "up": "run the server and pipelines",
        "config": "show the settings that serve would use",
        "key": "make API keys",
        "pipeline": "run pipelines on Spark",
        "cursors": "show the lag of a topic's consumers",
    },
    "data directories": {
        "backup": "save a log, running or not",
        "restore": "make a data directory from a backup",
        "check": "verify a data directory",
        "compact": "remove deleted bytes from the disk",
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        print(f"topics {topics.__version__}")
        return 0
    from topics.cli.work import MISTAKE, answering, tell

    if words[0] not in _names():
        tell(_unknown(words[0]))
        return MISTAKE
    return answering(lambda: _run(words))


def _run(words: list[str]) -> int:
    parser = Parser(prog="topics")
    verbs = parser.add_subparsers(dest="verb")
    _verb(words[0]).add_parser(verbs)
    for each in _parsers(parser):
        each.epilog = EXIT_CODES
    chosen = parser.parse_args(words)
    code: int = chosen.run(chosen)
    return code


def _verb(name: str) -> Any:
    """The module that has it."""
    match name:
        case "serve":
            from topics.cli import serve

            return serve
        case "up":
            from topics.cli import up

            return up
        case "config":
            from topics.cli import config

            return config
        case "key":
            from topics.cli import key

            return key
        case "pipeline":
            from topics.cli import pipeline

            return pipeline
        case "cursors":
            from topics.cli import cursors

            return cursors
        case "backup":
            from topics.cli import backup

            return backup
        case "restore":
            from topics.cli import restore

            return restore
        case "check":
            from topics.cli import check

            return check
        case _:
            from topics.cli import compact

            return compact


class Parser(argparse.ArgumentParser):
    """A mistake is one line; a flag is what it says, and not the beginning of another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for each in _parsers(self) for flag in each._option_string_actions]
            self.error(f"there is no {unknown[0]}{_meant(unknown[0].partition('=')[0], flags)}")
        return parsed

    def error(self, message: str) -> NoReturn:
        from topics.cli.work import MISTAKE, tell

        tell(message)
        sys.exit(MISTAKE)


def _parsers(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """Those of the verb, and of what it can do."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from _parsers(inner)


def _names() -> list[str]:
    return [name for group in VERBS.values() for name in group]


def _unknown(word: str) -> str:
    if word.startswith("-"):
        return f"there is no {word} in front of a verb; flags come behind it"
    return f'there is no verb "{word}"{_meant(word, _names())}; topics --help lists all'


def _meant(word: str, known: Iterable[str]) -> str:
    from topics.values import nearest

    meant = nearest(word, list(known))
    return "" if meant is None else f": did you mean {meant}?"


def _overview() -> str:
    lines = ["usage: topics VERB …", "", DESCRIPTION]
    for group, verbs in VERBS.items():
        lines += ["", f"{group}:", *(f"  {name:11} {text}" for name, text in verbs.items())]
    lines += ["", "topics VERB --help says more about a verb; topics --version which version this is."]
    return "\n".join([*lines, EXIT_CODES])


if __name__ == "__main__":
    sys.exit(main())
