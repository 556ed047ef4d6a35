"""`topics`: finds the verb and lets it answer.

A verb is imported when it is asked for, so that help and version need neither the server nor the client.
"""

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, TextIO

import topics

DESCRIPTION = "An append-only event log that never loses quietly."
EXIT_CODES = (
    "exit codes: 0 done, 1 refused or declined, 2 mistake, 3 loss (--fail-on-loss), 4 server unreachable, "
    "130 Ctrl-C"
)
# All verbs, as they are told to a person who has not named one.
VERBS = {
    "records": {
        "write": "append records to a topic",
        "read": "print the records of topics",
        "tail": "print the last ones, and follow",
        "delete": "remove records",
    },
    "topics": {
        "list": "list topics",
        "create": "make a topic",
        "config": "settings of a topic, or those that serve would use",
        "describe": "show the state of a topic",
        "ledger": "show which seqs a topic lacks, and why",
        "cursors": "show the lag of a topic's consumers",
        "drop": "remove a topic",
        "queue": "push, claim and finish jobs",
        "route": "copy records from topic to topic",
    },
    "the server": {
        "status": "say whether anything needs attention",
        "bench": "measure a server, and leave nothing behind",
        "demo": "see loss, a crash and a dead letter in half a minute",
        "serve": "run the server",
        "up": "run the server and pipelines",
        "pipeline": "run pipelines on Spark",
        "key": "make API keys",
        "completion": "let a shell complete verbs, flags and topics",
    },
    "data directories": {
        "backup": "save a log, running or not",
        "restore": "make a data directory from a backup",
        "check": "verify a data directory",
        "compact": "remove deleted bytes from the disk",
    },
}
# What a server refuses these is a refusal, with an exit code of its own.
_OF_OPERATORS = ("serve", "up", "pipeline", "key", "completion", *VERBS["data directories"])


def main(arguments: Sequence[str] | None = None) -> int:
    _mend_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        return _print(_overview())
    if words[0] == "--version":
        from topics.values.accelerator import described

        return _print(f"topics {topics.__version__}\naccelerator: {described()}")
    from topics.cli.work import MISTAKE, REFUSED, answering, tell

    if words[0] == "__complete":
        return _complete(words[1:])
    if words[0] not in _names():
        tell(_unknown(words[0]))
        return MISTAKE
    if words[0] in _OF_OPERATORS:
        return answering(lambda: _run(words))
    try:
        return answering(lambda: _run(words), refusal=REFUSED)
    except Exception as error:
        tell(f"this should not happen: {type(error).__name__}: {error}")
        return REFUSED


def _run(words: list[str]) -> int:
    chosen = parser_of(words[0]).parse_args(words)
    code: int = chosen.run(chosen)
    # What cannot be written is told here, and not by the interpreter as it ends.
    sys.stdout.flush()
    return code


def _mend_streams() -> None:
    """Data is UTF-8 in every pipe, whatever the locale; a stream that was closed has nobody at its end."""
    sys.stdin, sys.stdout = sys.stdin or _nobody(), sys.stdout or _nobody()
    sys.stderr = sys.stderr or _nobody()
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream is sys.stdout and not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
        else:
            stream.reconfigure(errors="backslashreplace")


def _nobody() -> TextIO:
    return open(os.devnull, "r+")


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except OSError as error:
        from topics.cli.work import answering

        return answering(partial(_raise, error))
    return 0


def _raise(error: Exception) -> NoReturn:
    raise error


def parser_of(verb: str) -> "Parser":
    """One that knows this verb, and no other."""
    parser = Parser(prog="topics")
    _verb(verb).add_parser(parser.add_subparsers(dest="verb"))
    for each in _parsers(parser):
        each.epilog = EXIT_CODES
    return parser


def _complete(arguments: list[str]) -> int:
    """What a shell asks, a candidate a line."""
    from topics.cli.remote.completion import behind_break, candidates, words_of

    words = words_of(arguments) or [""]
    if len(words) == 1:
        found = [name for name in _names() if name.startswith(words[0])]
    else:
        found = candidates(words, parser_of(words[0])) if words[0] in _names() else []
    for each in found:
        print(behind_break(each, words[-1]) if arguments[0] == "--bash" else each)
    return 0


def _verb(name: str) -> Any:
    """The module that has it."""
    match name:
        case "write":
            from topics.cli.remote import write

            return write
        case "read" | "tail":
            from topics.cli.remote import read

            return read
        case "list" | "describe" | "ledger":
            from topics.cli.remote import looking

            return looking
        case "create":
            from topics.cli.remote import settings

            return settings
        case "cursors":
            from topics.cli.remote import cursors

            return cursors
        case "drop" | "delete":
            from topics.cli.remote import removing

            return removing
        case "queue":
            from topics.cli.remote import queue

            return queue
        case "route":
            from topics.cli.remote import route

            return route
        case "status":
            from topics.cli.remote import status

            return status
        case "bench":
            from topics.cli.remote import bench

            return bench
        case "demo":
            from topics.cli.remote import demo

            return demo
        case "completion":
            from topics.cli.remote import completion

            return completion
        case "config":
            from topics.cli import config

            return config
        case "serve":
            from topics.cli import serve

            return serve
        case "up":
            from topics.cli import up

            return up
        case "key":
            from topics.cli import key

            return key
        case "pipeline":
            from topics.cli import pipeline

            return pipeline
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
    """A mistake is one line; a flag is what it says, not the beginning of another, and may stand anywhere."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        is_verb = not any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        return super().parse_known_args(self._flags_first(args) if is_verb else args, namespace)

    def _flags_first(self, words: list[str]) -> list[str]:
        """The same: what stands behind a flag would not be taken for more of what stands before it."""
        flags: list[str] = []
        others: list[str] = []
        left = iter(words)
        for word in left:
            if word == "--":
                return [*flags, *others, word, *left]
            action = self._option_string_actions.get(word)
            if action is not None:
                flags.append(word)
                if action.nargs is None:
                    value = next(left, None)
                    if value is None:  # a mistake, which is told of them as they are
                        return words
                    flags.append(value)
            elif word.partition("=")[0] in self._option_string_actions:
                flags.append(word)
            else:
                others.append(word)
        return [*flags, *others]

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flags = [flag for each in _parsers(self) for flag in each._option_string_actions]
            self.error(f"there is no {unknown[0]}{_meant(unknown[0].partition('=')[0], flags)}")
        return parsed

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file, flush=True)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            question = _meant(str(value), known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(action, f'there is no "{value}"{question}')

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
    return f'there is no verb "{word}"{_meant(word, _names()) or "; topics --help lists all"}'


def _meant(word: str, known: Iterable[str]) -> str:
    # Only mistakes pay for this import.
    from topics.values import did_you_mean

    return did_you_mean(word, known)


def _overview() -> str:
    lines = ["usage: topics VERB …", "", DESCRIPTION]
    for group, verbs in VERBS.items():
        lines += ["", f"{group}:", *(f"  {name:11} {text}" for name, text in verbs.items())]
    lines += ["", "topics VERB --help says more about a verb; topics --version which version this is."]
    return "\n".join([*lines, EXIT_CODES])


if __name__ == "__main__":
    sys.exit(main())
