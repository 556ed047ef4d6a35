"""`topics pipeline`: pipelines declared in a file, run on Spark."""

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topics.cli.errors import DEFAULT_URL, refuse_empty
from topics.cli.output import add_json
from topics.cli.parser import add_actions, add_verb, any_bytes
from topics.core import UserMistake

if TYPE_CHECKING:
    from pyspark_topics.options import ServerOptions
    from pyspark_topics.pipelines.context import Outcome, Pipeline
    from pyspark_topics.pipelines.declaration import Declaration
    from pyspark_topics.pipelines.runner import Display, Runner
    from pyspark_topics.session import SharedSession

# A log that people read gets a line this often while nothing but figures change; machines get them all.
TEXT_PAUSE_S = 10.0
# In the folder of the pipelines' state: what the JVM has to say is rarely what a user wants to see.
SPARK_LOG = "spark.log"


def add_parser(verbs: Any) -> None:
    actions = add_actions(verbs, "pipeline", __doc__)
    running = add_verb(
        actions,
        "run",
        run,
        "Run the named pipelines of a file. Without names: all that follow their topics; jobs run when they "
        "are named. Ctrl-C or SIGTERM ends them cleanly.",
        text="run the pipelines of a file",
    )
    checking = add_verb(
        actions,
        "check",
        check,
        "Look at the named pipelines of a file, or at all: names, settings, SQL, schemas, tables. A line for "
        "each mistake, and exit code 2. Nothing is written.",
        text="find the mistakes of a file",
    )
    listing = add_verb(actions, "list", show, "Check a file.", text="show the pipelines of a file")
    for parser in (running, checking, listing):
        parser.add_argument("file", metavar="FILE", type=Path, help="a declaration, .toml or .py")
    for parser in (running, checking):
        parser.add_argument("names", nargs="*", metavar="NAME", help="which of them")
    running.add_argument("--master", help="Spark master (local[*], or that of spark-submit)")
    for parser in (running, checking):
        parser.add_argument("--url", help=f"the server, if the file names none (TOPICS_URL, {DEFAULT_URL})")
    running.add_argument("--once", action="store_true", help="stop at the heads of now")
    running.add_argument("--restart", action="store_true", help="start again what failed, after a pause")
    running.add_argument(
        "--accept",
        action="store_true",
        help="routes: a batch that is committed with other rows counts as written; go on behind it",
    )
    for option, effect in (
        ("--skip", "leave this file out from now on, also if it is gone; what is committed of it stays"),
        ("--again", "take this file as new"),
    ):
        running.add_argument(
            option,
            action="append",
            default=[],
            type=any_bytes,
            metavar="PATH",
            help=f"load, repeatable: {effect}",
        )
    add_json(running)


def show(arguments: argparse.Namespace) -> int:
    for name, pipeline in _load(arguments.file).pipelines.items():
        print(f"{name}  {pipeline.kind}  {'follows its topics' if pipeline.follows else 'a job'}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    _import_spark()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    mistakes = 0
    with contextlib.closing(_mistakes(arguments)) as found:
        for line in found:
            mistakes += 1
            print(line, file=sys.stderr, flush=True)
    return 2 if mistakes else 0


def _mistakes(arguments: argparse.Namespace) -> Generator[str]:
    from pyspark_topics.pipelines.context import Check
    from pyspark_topics.pipelines.declaration import DeclarationError, read_what_is_right
    from pyspark_topics.pipelines.state import state_path
    from pyspark_topics.session import SharedSession

    declaration, wrong = read_what_is_right(arguments.file)
    told = [line.removeprefix("pipeline ").split(maxsplit=1)[0].rstrip(":") for line in wrong]
    names = [name for name in arguments.names if name not in told]
    yield from wrong
    try:
        chosen = declaration.chosen(names) if names else {} if arguments.names else declaration.pipelines
    except DeclarationError as error:
        yield str(error)
        return
    # Spark makes a folder for tables of its own wherever it is started, unless it is told another place.
    with tempfile.TemporaryDirectory() as elsewhere:
        settings = {"spark.sql.warehouse.dir": elsewhere, **declaration.spark}
        log = Path(elsewhere, SPARK_LOG)
        session = SharedSession("topics pipeline check", None, settings, log)
        server = _server(arguments, declaration)
        try:
            state = state_path(declaration.state, declaration.storage)
            yield from Check(chosen, server, session, declaration.storage, log, state).mistakes()
        finally:
            session.stop()


def run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # An error of ours on its way through the JVM is told when it arrives, and not by those who carry it; some
    # of which they tell under no name.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_not_of_carriers)
    declaration = _load(arguments.file)
    from pyspark_topics.pipelines.declaration import DeclarationError

    try:
        chosen = declaration.chosen(arguments.names)
    except DeclarationError as error:
        raise UserMistake(f"{arguments.file}: {error}") from None
    with _display(arguments.json) as display:
        session, runner = _prepare(arguments, declaration, display)
        _refuse_strangers(runner, chosen)
        try:
            with _signals(runner):
                outcomes = runner.run(chosen)
        finally:
            session.stop()
    return _report(outcomes, arguments.json)


def _not_of_carriers(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _load(path: Path) -> "Declaration":
    _import_spark()
    from pyspark_topics.pipelines.declaration import DeclarationError, read_declaration

    try:
        return read_declaration(path)
    except DeclarationError as error:
        raise UserMistake(str(error)) from None


def _import_spark() -> None:
    try:
        import pyspark_topics.pipelines  # noqa: F401
    except ImportError as error:
        raise UserMistake(
            f"pipelines need Spark, which is not installed ({error.name}): pip install 'topics-log[spark]'"
        ) from None


def _server(arguments: argparse.Namespace, declaration: "Declaration") -> "ServerOptions":
    from pyspark_topics.options import ServerOptions

    refuse_empty("--url", arguments.url)
    url = arguments.url or declaration.url or os.environ.get("TOPICS_URL") or DEFAULT_URL
    server = ServerOptions(url, os.environ.get("TOPICS_API_KEY") or None)
    try:
        server.client().close()
    except ValueError as error:
        raise UserMistake(str(error)) from None
    return server


def _prepare(
    arguments: argparse.Namespace, declaration: "Declaration", display: "Display"
) -> "tuple[SharedSession, Runner]":
    from pyspark_topics.pipelines.declaration import STATE
    from pyspark_topics.pipelines.runner import Runner
    from pyspark_topics.pipelines.state import state_path
    from pyspark_topics.session import SharedSession

    server = _server(arguments, declaration)
    state = state_path(declaration.state, declaration.storage)
    # A log is written line by line, which an object store cannot do.
    log = (state if isinstance(state, Path) else Path(STATE).absolute()) / SPARK_LOG
    name = f"topics pipelines of {arguments.file.name}"
    session = SharedSession(name, arguments.master, declaration.spark, log)
    runner = Runner(
        server,
        state,
        session,
        display,
        once=arguments.once,
        restart=arguments.restart,
        spark_is_gone=session.is_gone,
        storage=declaration.storage,
        accept=arguments.accept,
        skip=tuple(map(os.path.abspath, arguments.skip)),
        again=tuple(map(os.path.abspath, arguments.again)),
    )
    return session, runner


def _refuse_strangers(runner: "Runner", chosen: "dict[str, Pipeline]") -> None:
    """Files that no load of this run knows: misspelled, most likely."""
    from pyspark_topics.errors import PipelineFailed
    from pyspark_topics.pipelines.load import refuse_strangers

    try:
        refuse_strangers(chosen, runner.state, {"--skip": runner.skip, "--again": runner.again})
    except PipelineFailed as mistake:
        raise UserMistake(str(mistake)) from None


@contextlib.contextmanager
def _display(as_json: bool) -> "Iterator[Display]":
    from pyspark_topics.pipelines.progress import Board, Lines

    # Our own way to the terminal: while Spark starts, standard error leads elsewhere.
    with os.fdopen(os.dup(2), "w") as errors:
        if as_json:
            yield Lines(sys.stdout, as_json=True, pause_s=0.0)
        elif errors.isatty():
            from rich.console import Console

            with Board(Console(file=errors)) as board:
                yield board
        else:
            yield Lines(errors, as_json=False, pause_s=TEXT_PAUSE_S)


@contextlib.contextmanager
def _signals(runner: "Runner") -> Iterator[None]:
    """The first signal ends pipelines cleanly; the second has its usual effect."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int, _frame: object) -> None:
        runner.stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _report(outcomes: "dict[str, Outcome]", as_json: bool) -> int:
    for name, outcome in outcomes.items():
        if as_json:
            print(json.dumps({"pipeline": name, "ok": outcome.ok, "result": outcome.facts}), flush=True)
        else:
            for line in outcome.lines:
                print(line)
    return 0 if all(outcome.ok for outcome in outcomes.values()) else 1
