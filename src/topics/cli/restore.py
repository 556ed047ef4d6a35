"""`topics restore`: make a data directory out of a backup, as of its end, of a moment, or of a seq.

Every file of the backup is verified before anything is written. Restored topics get new epochs, because the
server they come from may have gone on: consumers with cursors of the old epoch are told so.
"""

import argparse
import os
from datetime import datetime
from typing import Any

from topics.cli.errors import refuse_empty
from topics.cli.offline import add_cold_dir, offline_settings, progress
from topics.cli.output import add_json, counted, show
from topics.cli.parser import add_verb, any_bytes
from topics.core import UserMistake, moment
from topics.engine.node import Node
from topics.ops.backup_directory import Manifest
from topics.ops.restore import Restore, Restored, RestoreRequest, chosen, located

# Of a seq, which fits into 64 bits.
MOST_DIGITS = 20


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "restore", run, __doc__)
    for name, text in (
        ("source", "a directory of backups, or one backup in it"),
        ("data_dir", "a directory that is empty or not there yet"),
    ):
        parser.add_argument(name, type=any_bytes, metavar=name.upper(), help=text)
    parser.add_argument("--backup", metavar="NAME", help="which backup; the newest that fits, if not said")
    parser.add_argument("--at", metavar="TIME", help="as of a moment: 2026-05-01T12:00:00Z, or milliseconds")
    parser.add_argument(
        "--seq", action="append", default=[], metavar="TOPIC=N", help="this topic only up to a seq"
    )
    parser.add_argument(
        "--same-history",
        action="store_true",
        help="keep the epochs: nothing was written to the server after this backup",
    )
    add_cold_dir(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    refuse_empty("SOURCE", arguments.source)
    refuse_empty("DATA_DIR", arguments.data_dir)
    wanted = RestoreRequest(
        None if arguments.at is None else _milliseconds(arguments.at),
        dict(_seq(text) for text in arguments.seq),
        arguments.same_history,
    )
    if wanted.same_history and (wanted.at_ms is not None or wanted.heads):
        raise UserMistake("--same-history is for a whole backup: with --at or --seq, history ends earlier")
    store, name = located(arguments.source, arguments.backup)
    manifest, is_exact = chosen(store, name, wanted.at_ms)
    settings = offline_settings(arguments.data_dir, arguments.cold_dir)
    with progress(as_json=arguments.json) as steps:
        restored = Restore(store, manifest, settings, Node, steps).run(wanted, is_exact=is_exact)
    _report(arguments, manifest, restored)
    return 0


def _milliseconds(text: str) -> int:
    if _is_number(text):
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UserMistake(f'"{text}" is not a time such as 2026-05-01T12:00:00Z') from None
    if parsed.tzinfo is None:
        raise UserMistake(f'"{text}" lacks a time zone: write Z for UTC')
    # Nothing was written before 1970, wherever that began earlier.
    return max(int(parsed.timestamp() * 1000), 0)


def _seq(text: str) -> tuple[str, int]:
    topic, separator, number = text.rpartition("=")
    if not separator or not _is_number(number):
        raise UserMistake(f'"{text}" is not TOPIC=N')
    return topic, int(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def _report(arguments: argparse.Namespace, manifest: Manifest, restored: Restored) -> None:
    result = {
        "backup": manifest.name,
        "data_dir": os.path.abspath(arguments.data_dir),
        "as_of_ms": restored.as_of_ms,
        "exact": restored.is_exact,
        "topics": restored.topics,
        "records": restored.records,
        "new_epochs": restored.new_epochs,
        "identity": restored.identity.identity,
        "restored_from": restored.identity.restored_from or None,
    }
    text = (
        f"restored {counted(restored.topics, 'topic')} with {counted(restored.records, 'record')} "
        f"as of {moment(restored.as_of_ms)} from backup {manifest.name}"
    )
    if not restored.is_exact:
        text += (
            f"\nno backup holds that very moment: what was deleted, evicted or configured between then and "
            f"{moment(manifest.from_ms)} is as it was at the later time"
        )
    if restored.new_epochs:
        text += "\nall topics have new epochs: a consumer that remembers an old one starts over"
    show(
        result, f"{text}\nstart it with: topics serve --data-dir {arguments.data_dir}", as_json=arguments.json
    )
