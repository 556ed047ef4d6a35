"""`topics check`: verify every checksum and every rule of a data directory, and say what is wrong in words.

Nothing is changed, and no server may run on the directory. Exit code 0: clean. 1: there are problems, which
are what a server would announce as lost, or worse. Notes are what the next start puts right by itself.
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from topics.cli.offline import add_cold_dir, offline_settings, progress
from topics.cli.output import add_json, counted, show
from topics.cli.parser import add_verb, any_bytes
from topics.engine.node import Node
from topics.ops.check import Checked, check
from topics.ops.check_files import PROBLEM

FOUND = 1


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "check", run, __doc__)
    parser.add_argument(
        "data_dir", type=any_bytes, metavar="DATA_DIR", help="a data directory without a running server"
    )
    add_cold_dir(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    settings = offline_settings(arguments.data_dir, arguments.cold_dir)
    with progress(as_json=arguments.json) as steps, _quiet():
        checked = check(settings, Node, steps)
    problems = sum(finding.severity == PROBLEM for finding in checked.findings)
    result = {"clean": not problems, **asdict(checked)}
    show(result, _text(arguments.data_dir, checked, problems), as_json=arguments.json)
    return FOUND if problems else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """What recovery would log is among the findings, in words that are clear without the rest of a log."""
    logger = logging.getLogger("topics")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _text(data_dir: str, checked: Checked, problems: int) -> str:
    lines = [f"{finding.severity}: {finding.file} {finding.text}" for finding in checked.findings]
    topics, records = counted(checked.topics, "topic"), counted(checked.records, "record")
    verdict = "clean" if not problems else f"{counted(problems, 'problem')} found"
    return "\n".join([*lines, f"{data_dir}: {verdict}; {topics} with {records}"])
