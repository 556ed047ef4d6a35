"""`topics write`: append records, given as arguments or on standard input.

--input json: a JSON value each argument or line; lines: each is a text; csv: a row is an object with the
names of the first line, all of which differ. Empty lines are skipped, and blank ones, except in csv. At a
line that is a mistake it ends: what stood before is written, and nothing behind it.
"""

import argparse
import csv
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics.cli.errors import DONE, INTERRUPTED, Interruption, print_error
from topics.cli.output import Output, counted, progress
from topics.cli.parser import add_verb, any_bytes
from topics.cli.remote.client import Json, require_server, topic_path
from topics.cli.remote.options import add_flags, client_for, flags_of, given_flags
from topics.client.sync import Topics
from topics.client.wire.requests import WireRequest
from topics.client.wire.session import decode_or_refuse
from topics.core import UserMistake

# The limits of one request. Each piece of input that is read is written at once.
MOST_RECORDS = 1000
MOST_BYTES = 1 << 20
_PIECE = 1 << 16
_BOM = b"\xef\xbb\xbf"

_decode = msgspec.json.Decoder(dict[str, Any]).decode

# A line of input with its name for messages, and the record made of it.
Line = tuple[str, bytes]
Row = tuple[str, msgspec.Raw]


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "write", run, __doc__, keeps_lines=True)
    add_input(parser)
    add_flags(parser)


def add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "data",
        nargs="*",
        default=[],
        type=any_bytes,
        metavar="DATA",
        help="records; without any, or -, standard input",
    )
    parser.add_argument(
        "--input", choices=("json", "lines", "csv"), default="json", help="what they are (json)"
    )
    parser.add_argument("--tag", help="a label of every record")
    parser.add_argument("--node", help="who writes them")


def run(arguments: argparse.Namespace) -> int:
    return append(arguments, None)


def append(arguments: argparse.Namespace, config: dict[str, Any] | None) -> int:
    """Write the records of the arguments. A new topic gets `config`."""
    with client_for(arguments, awaits_restarts=True) as client:
        # Before anything is typed, or read from a pipe.
        require_server(client)
        writer = _Writer(client, arguments, config)
        try:
            # A moving bar would disturb typing.
            is_typed = _from_standard_input(arguments) and sys.stdin.isatty()
            with progress("writing", _size(arguments), hidden=is_typed) as advance, Interruption() as ctrl_c:
                for batch in _batches(arguments, advance):
                    ctrl_c.begin()  # a request that was sent is answered and counted
                    writer.write(batch)
                    ctrl_c.end()
            if not writer.count:
                raise UserMistake("there is nothing to write")
        except KeyboardInterrupt:
            print_error(f"interrupted: {counted(writer.count, 'record')} written")
            print_error(f"go on{writer.behind} with: {_going_on(arguments, writer.count)}")
            return INTERRUPTED
        finally:
            writer.report(Output(arguments))
    return DONE


def _going_on(arguments: argparse.Namespace, count: int) -> str:
    """The command that writes the rest. Standard input has to be given again, from there on."""
    verb = ["write"] if arguments.verb == "write" else [arguments.verb, "push"]
    words = ["topics", *verb, arguments.topic]
    # Of a table, the names are one of the arguments.
    rest = [] if _from_standard_input(arguments) else arguments.data
    names = rest[: arguments.input == "csv"]
    words += [*names, *[word for word in rest[len(names) :] if word.strip()][count:]]
    form = None if arguments.input == "json" else arguments.input
    words += flags_of({"--input": form, "--tag": arguments.tag, "--node": arguments.node})
    return shlex.join([*words, *given_flags(arguments)])


def write(client: Topics, topic: str, body: Json) -> Json:
    """Append records under an idempotency key. `Uncertain`: they may be in the log or not."""
    key = client._session.new_key()
    request = WireRequest(
        method="POST",
        target=topic_path(topic) + "?return_seqs=false",
        body=msgspec.json.encode({**body, "idempotency_key": key}),
    )
    return decode_or_refuse(_decode, client._io.run(client._session.write(topic, request, key)))


class _Writer:
    def __init__(self, client: Topics, arguments: argparse.Namespace, config: dict[str, Any] | None) -> None:
        self._client = client
        self._topic = arguments.topic
        self._label = {} if arguments.tag is None else {"tag": arguments.tag}
        self._common = {} if arguments.node is None else {"node": arguments.node}
        if config is not None:
            self._common["config"] = config
        self._first: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self.count = 0
        self.behind = ""

    def write(self, batch: list[Row]) -> None:
        records = [{"data": data, **self._label} for _, data in batch]
        self._last = write(self._client, self._topic, {"records": records, **self._common})
        self._first = self._first or self._last
        self.count += len(batch)
        self.behind = f" behind {batch[-1][0]}"

    def report(self, output: Output) -> None:
        if not self.count:
            return
        last = self._last
        told = {"topic": last["topic"], "epoch": last.get("epoch"), "first_seq": self._first["first_seq"]}
        told |= {"last_seq": last["last_seq"], "count": self.count, "created": self._first["created"]}
        seqs = f"seqs {told['first_seq']:,} to {told['last_seq']:,}"
        output.answer(told, f"{counted(self.count, 'record')} in {told['topic']}, {seqs}")


# --- what is to be written ----------------------------------------------------------------------------------


def _batches(arguments: argparse.Namespace, advance: Callable[[float], None]) -> Iterator[list[Row]]:
    """Yield batches. A mistake is raised after the batch of the records before it."""
    batch: list[Row] = []
    size = 0
    try:
        for row in _rows(arguments.input, _pieces(arguments, advance)):
            if batch and (row is None or len(batch) == MOST_RECORDS or size + len(row[1]) > MOST_BYTES):
                yield batch
                batch, size = [], 0
            if row is not None:
                batch.append(row)
                size += len(row[1])
    except UserMistake:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _rows(form: str, pieces: Iterator[list[Line]]) -> Iterator[Row | None]:
    """The records of the input, and None at the end of each piece, which is written at once."""
    if form == "csv":
        yield from _csv(line for piece in pieces for line in piece)
        return
    encode = _json if form == "json" else _text
    for piece in pieces:
        yield from (encode(line) for line in piece if line[1].strip())
        yield None


def _json(line: Line) -> Row:
    """Check a JSON value, and keep it as it was written."""
    where, text = line
    try:
        # Raw: a number that no float can hold is JSON, too.
        msgspec.json.decode(text, type=msgspec.Raw)
        text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserMistake(f"{where} is no JSON: {error}; --input lines takes it as text") from None
    return where, msgspec.Raw(text.strip())


def _text(line: Line) -> Row:
    return line[0], msgspec.Raw(msgspec.json.encode(_decoded(line)))


def _decoded(line: Line) -> str:
    where, text = line
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise UserMistake(f"{where} is no UTF-8: {error.reason}") from None


def _csv(lines: Iterator[Line]) -> Iterator[Row]:
    """Parse CSV. A quoted cell may contain line breaks."""
    last = ["the input"]

    def texts() -> Iterator[str]:
        for line in lines:
            last[0] = line[0]
            yield _decoded(line) + "\n"

    reader = csv.reader(texts(), strict=True)
    names: list[str] = []
    try:
        for row in filter(None, reader):
            if not names:
                names = row
                _refuse_duplicate_columns(last[0], names)
                continue
            if len(row) != len(names):
                cells = f"{counted(len(row), 'cell')}, the first line {counted(len(names), 'name')}"
                raise UserMistake(f"{last[0]} has {cells}; --input lines takes it as text")
            yield last[0], msgspec.Raw(msgspec.json.encode(dict(zip(names, row, strict=True))))
    except csv.Error as error:
        raise UserMistake(f"{last[0]} is no CSV: {error}; --input lines takes it as text") from None


def _refuse_duplicate_columns(where: str, names: list[str]) -> None:
    """Refuse two columns with one name."""
    for number, name in enumerate(names, 1):
        first = names.index(name) + 1
        if first < number:
            raise UserMistake(f'{where}: columns {first} and {number} are both called "{name}"')


# --- where it comes from ------------------------------------------------------------------------------------


def _from_standard_input(arguments: argparse.Namespace) -> bool:
    return arguments.data in ([], ["-"])


def _size(arguments: argparse.Namespace) -> float | None:
    """The size of the input if it is a file, for the progress bar."""
    try:
        about = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    return about.st_size if _from_standard_input(arguments) and stat.S_ISREG(about.st_mode) else None


def _pieces(arguments: argparse.Namespace, advance: Callable[[float], None]) -> Iterator[list[Line]]:
    """Yield the lines of the input, in the pieces that were read."""
    if not _from_standard_input(arguments):
        # Bytes that are not UTF-8 came as surrogates, and are written as they were.
        words = [word.encode("utf-8", "surrogateescape") for word in arguments.data]
        yield [(f"argument {number}", word) for number, word in enumerate(words, 1)]
        return
    if sys.stdin.isatty():
        print_error("reading records from the terminal, one a line; Ctrl-D ends them")
    number, rest = 0, b""
    for piece in _read_pieces():
        advance(len(piece))
        *whole, rest = (rest + piece).split(b"\n")
        lines = []
        for line in whole:
            number += 1
            lines.append((f"line {number}", _bare(line, number)))
        yield lines
    if rest:
        yield [(f"line {number + 1}", _bare(rest, number + 1))]


def _bare(line: bytes, number: int) -> bytes:
    line = line.removesuffix(b"\r")
    return line.removeprefix(_BOM) if number == 1 else line


def _read_pieces() -> Iterator[bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        yield sys.stdin.read().encode("utf-8", "surrogateescape")
        return
    while piece := os.read(descriptor, _PIECE):
        yield piece
