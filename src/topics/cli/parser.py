"""Parses command lines: flags in any place, and errors as one line with a suggestion."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn


def parser_for(module: Any, epilog: str) -> "Parser":
    """A parser with the verbs of one module."""
    parser = Parser(prog="topics")
    module.add_parser(parser.add_subparsers(dest="verb"))
    for each in _parsers(parser):
        each.epilog = epilog
    return parser


def any_bytes(word: str) -> str:
    """The type of an argument that may be any bytes: a path, or data that is checked later."""
    return word


def add_verb(
    verbs: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    description: str | None,
    *,
    text: str | None = None,
    keeps_lines: bool = False,
) -> "Parser":
    """Add the parser of a verb or an action. `text` describes it in a list of actions.

    With `keeps_lines`, the lines of the description are not joined, because it has a list or an example.
    """
    kind = argparse.RawDescriptionHelpFormatter if keeps_lines else argparse.HelpFormatter
    parser: Parser = verbs.add_parser(name, help=text, description=description, formatter_class=kind)
    parser.set_defaults(run=run)
    return parser


def add_actions(verbs: Any, name: str, description: str | None) -> Any:
    """Add a verb that is followed by one of its actions; `add_verb` adds them to the result."""
    parser = verbs.add_parser(name, description=description)
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


class Parser(argparse.ArgumentParser):
    """Errors are one line. Flags are not abbreviated and may stand in any place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        is_verb = not any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        return super().parse_known_args(self._flags_first(args) if is_verb else args, namespace)

    def _flags_first(self, words: list[str]) -> list[str]:
        """Move flags to the front: argparse would not join positional words before and after a flag."""
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

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        # Words of an inner parser are checked there.
        if action.type not in (any_bytes, Path) and not isinstance(action, argparse._SubParsersAction):
            arg_string = _text(action, arg_string)
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            question = _meant(str(value), known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(action, f'there is no "{value}"{question}')

    def error(self, message: str) -> NoReturn:
        from topics.cli.errors import MISTAKE, print_error

        print_error(message)
        sys.exit(MISTAKE)


def _text(action: argparse.Action, word: str) -> str:
    """Bytes that the locale knows no letters for are read as UTF-8, which is what a server is sent."""
    try:
        return word.encode("utf-8", "surrogateescape").decode()
    except UnicodeError:
        shown = os.fsencode(word).decode("utf-8", "backslashreplace")
        raise argparse.ArgumentError(action, f'"{shown}" is no UTF-8') from None


def _parsers(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """The parser and all parsers inside it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from _parsers(inner)


def _meant(word: str, known: Iterable[str]) -> str:
    # Only mistakes pay for this import.
    from topics.core import did_you_mean

    return did_you_mean(word, known)
