"""`topics`: finds the module of a verb and runs it.

The module is imported on demand, so that help and version import neither the server nor the client.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topics.cli.parser import Parser

DESCRIPTION = "An append-only event log that never loses quietly."
EXIT_CODES = (
    "exit codes: 0 done, 1 refused or declined, 2 mistake, 3 loss (--fail-on-loss), 4 server unreachable, "
    "130 Ctrl-C"
)
# All verbs: the description in `topics --help`, and the module in this package.
_TABLE = {
    "records": {
        "write": ("append records to a topic", "remote.write"),
        "read": ("print the records of topics", "remote.read"),
        "tail": ("print the last ones, and follow", "remote.read"),
        "delete": ("remove records", "remote.remove"),
    },
    "topics": {
        "list": ("list topics", "remote.listing"),
        "create": ("make a topic", "remote.config"),
        "config": ("settings of a topic, or those that serve would use", "remote.config"),
        "describe": ("show the state of a topic", "remote.listing"),
        "ledger": ("show which seqs a topic lacks, and why", "remote.listing"),
        "cursors": ("show the lag of a topic's consumers", "remote.listing"),
        "drop": ("remove a topic", "remote.remove"),
        "queue": ("push, claim and finish jobs", "remote.queue"),
        "route": ("copy records from topic to topic", "remote.route"),
    },
    "the server": {
        "status": ("say whether anything needs attention", "remote.status"),
        "bench": ("measure a server, and leave nothing behind", "remote.bench"),
        "demo": ("see loss, a crash and a dead letter in half a minute", "remote.demo"),
        "serve": ("run the server", "serve"),
        "up": ("run the server and pipelines", "up"),
        "pipeline": ("run pipelines on Spark", "pipeline"),
        "key": ("make API keys", "key"),
        "completion": ("let a shell complete verbs, flags and topics", "remote.completion"),
    },
    "data directories": {
        "backup": ("save a log, running or not", "backup"),
        "restore": ("make a data directory from a backup", "restore"),
        "check": ("verify a data directory", "check"),
        "compact": ("remove deleted bytes from the disk", "compact"),
    },
}
VERBS = {group: {verb: text for verb, (text, _) in verbs.items()} for group, verbs in _TABLE.items()}
MODULES = {verb: module for verbs in _TABLE.values() for verb, (_, module) in verbs.items()}
_INTERRUPTED = 130
# An unexpected error of these keeps its traceback, for operators to report.
_OF_OPERATORS = ("serve", "up", "pipeline", "key", "completion", *VERBS["data directories"])


def main(arguments: "Sequence[str] | None" = None) -> int:
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        # During an import.
        print("topics: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _main(arguments: "Sequence[str] | None") -> int:
    _mend_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        return _print(_overview())
    if words[0] == "--version":
        return _print(_version())
    from topics.cli.errors import MISTAKE, REFUSED, print_error, report_errors

    if words[0] == "__complete":
        return _complete(words[1:])
    if words[0] not in MODULES:
        print_error(_unknown(words[0]))
        return MISTAKE
    if words[0] in _OF_OPERATORS:
        # Most of them use 1 for something else. A refusal of compact is a refusal.
        return report_errors(lambda: _run(words), refusal=REFUSED if words[0] == "compact" else MISTAKE)
    try:
        return report_errors(lambda: _run(words), refusal=REFUSED)
    except Exception as error:
        print_error(f"this should not happen: {type(error).__name__}: {error}")
        return REFUSED


def _version() -> str:
    version = f"topics {topics.__version__}"
    try:
        from topics import codec
    except ModuleNotFoundError:
        # The dependencies of the server are not installed.
        return version
    return f"{version}\ncodec: {codec.NAME}"


def _run(words: list[str]) -> int:
    chosen = parser_of(words[0]).parse_args(words)
    code: int = chosen.run(chosen)
    # Report output that cannot be written here, not when the interpreter ends.
    sys.stdout.flush()
    return code


def _mend_streams() -> None:
    """Use UTF-8 in pipes, whatever the locale is, and replace closed streams."""
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
        from topics.cli.errors import report_errors

        failure = error

        def fail() -> NoReturn:
            raise failure

        return report_errors(fail)
    return 0


def parser_of(verb: str) -> "Parser":
    """The parser of this verb."""
    from importlib import import_module

    from topics.cli.parser import parser_for

    return parser_for(import_module(f"topics.cli.{MODULES[verb]}"), EXIT_CODES)


def _complete(arguments: list[str]) -> int:
    """Print the candidates for a shell, one per line."""
    from topics.cli.remote.completion import after_break, candidates, words_of

    words = words_of(arguments) or [""]
    if len(words) == 1:
        found = [name for name in MODULES if name.startswith(words[0])]
    else:
        found = candidates(words, parser_of(words[0])) if words[0] in MODULES else []
    for each in found:
        print(after_break(each, words[-1]) if arguments[0] == "--bash" else each)
    return 0


def _unknown(word: str) -> str:
    if word.startswith("-"):
        return f"there is no {word} in front of a verb; flags come behind it"
    from topics.core import did_you_mean

    return f'there is no verb "{word}"{did_you_mean(word, MODULES) or "; topics --help lists all"}'


def _overview() -> str:
    lines = ["usage: topics VERB …", "", DESCRIPTION]
    for group, verbs in VERBS.items():
        lines += ["", f"{group}:", *(f"  {name:11} {text}" for name, text in verbs.items())]
    lines += ["", "topics VERB --help says more about a verb; topics --version which version this is."]
    return "\n".join([*lines, EXIT_CODES])


if __name__ == "__main__":
    sys.exit(main())
