"""`topics compact --purge`: remove the bytes of deleted records from the disk, for good.

A delete marks records; their bytes stay in segments and journal until those are replaced. A purge replaces
them now, on a running server or in a data directory without one.
"""

import argparse
import asyncio
import time
from typing import Any

from topics.cli.offline import add_where, offline_settings, operator_client, progress
from topics.cli.output import add_json, amount, counted, show
from topics.cli.parser import add_verb
from topics.cli.remote.client import ask
from topics.core import Settings, UserMistake
from topics.engine.node import Node
from topics.ops.directory import Steps, directories_of, require_all_segments
from topics.ops.purge import FAILED, REWRITING
from topics.storage import Filesystem

POLL_S = 0.2


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "compact", run, __doc__)
    parser.add_argument("--purge", action="store_true", help="say that it is meant: this cannot be undone")
    parser.add_argument("--topic", action="append", metavar="NAME", help="only files that hold this topic")
    add_where(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.purge:
        raise UserMistake("compact needs --purge: it removes the bytes of deleted records for good")
    with progress(as_json=arguments.json) as steps:
        if arguments.data_dir is not None:
            settings = offline_settings(arguments.data_dir, arguments.cold_dir)
            require_all_segments(Filesystem(), directories_of(settings))
            state = asyncio.run(_purge_directory(settings, arguments.topic, steps))
        else:
            state = _purge_server(arguments.url, arguments.topic, steps)
    if state["state"] == FAILED:
        raise UserMistake(f"the purge failed: {state['error']}")
    show(state, _summary(state), as_json=arguments.json)
    return 0


def _purge_server(url: str | None, topics: list[str] | None, steps: Steps) -> dict[str, Any]:
    with operator_client(url) as client:
        state = ask(client, "POST", "/v0/admin/purge", {"topics": topics})
        while state["finished_ms"] is None:
            _follow(state, steps)
            time.sleep(POLL_S)
            state = ask(client, "GET", f"/v0/admin/purge/{state['purge']}")
    return state


async def _purge_directory(settings: Settings, topics: list[str] | None, steps: Steps) -> dict[str, Any]:
    steps.begin("opening")
    node = Node(settings)
    node.recover()
    node.run()
    try:
        for name in topics or ():
            if node.engine.find(name) is None:
                raise UserMistake(f"there is no topic {name}")
        purge = node.purges.start(topics)
        while purge.finished_ms is None:
            _follow(purge.shown(), steps)
            await asyncio.sleep(POLL_S / 10)
    finally:
        await node.close()
    return purge.shown()


def _follow(state: dict[str, Any], steps: Steps) -> None:
    if state["files_held"]:
        steps.begin(f"waiting for readers of {counted(state['files_held'], 'file')}")
    elif state["phase"] == REWRITING:
        steps.begin("rewriting segments", state["files"])
        steps.reach(state["files_examined"], state["files"])
    else:
        steps.begin(state["phase"])


def _summary(state: dict[str, Any]) -> str:
    records, files = counted(state["records"], "deleted record"), counted(state["files_rewritten"], "file")
    segments, journal = amount(state["segment_bytes"]), amount(state["journal_bytes"])
    return (
        f"removed {records} from {files} ({segments}) and {journal} of journal;"
        " copies in backups and exports are not reached"
    )
