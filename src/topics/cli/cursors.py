"""`topics cursors`: how far the consumers of a topic have come."""

import argparse
import time
from datetime import UTC, datetime
from typing import Any

from topics.cli.work import add_json, client_for, show
from topics.client import Client, Refused
from topics.values import UserMistake

POLL_S = 0.2


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("cursors", help="show the lag of a topic's consumers", description=__doc__)
    parser.add_argument("topic")
    parser.add_argument("consumers", nargs="*", metavar="CONSUMER", help="only these")
    parser.add_argument("--url", help="address of the server (TOPICS_URL)")
    parser.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="until nothing waits for any of them; exit code 1 if that takes longer",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with client_for(arguments.url) as client:
        deadline = time.monotonic() + (arguments.wait or 0.0)
        while True:
            state = _look(client, arguments.topic, arguments.consumers, waiting=arguments.wait is not None)
            behind = _behind(state, arguments.consumers)
            if not behind or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
    show(state, _table(state), as_json=arguments.json)
    return 1 if behind and arguments.wait is not None else 0


def _look(client: Client, topic: str, consumers: list[str], *, waiting: bool) -> dict[str, Any]:
    try:
        state = client.cursors(topic)
    except Refused as refusal:
        if refusal.code != "topic_not_found":
            raise
        if not waiting:
            raise UserMistake(f'there is no topic "{topic}"') from None
        return {"topic": topic, "head_seq": 0, "cursors": []}
    cursors = [one for one in state["cursors"] if not consumers or one["consumer"] in consumers]
    known = {one["consumer"] for one in cursors}
    missing = [name for name in consumers if name not in known]
    if missing and not waiting:
        raise UserMistake(f'topic "{topic}" has no consumer "{missing[0]}"')
    return {"topic": topic, "head_seq": state["head_seq"], "cursors": cursors}


def _behind(state: dict[str, Any], consumers: list[str]) -> bool:
    """A consumer has not read everything, or has not been seen at all."""
    found = state["cursors"]
    return len(found) < max(len(set(consumers)), 1) or any(one["lag"] != 0 for one in found)


def _table(state: dict[str, Any]) -> str:
    head = state["head_seq"]
    lines = [f"{state['topic']} is gone" if head is None else f"{state['topic']} is at seq {head:,}"]
    if not state["cursors"]:
        lines.append("no consumer has published a cursor")
    width = max((len(one["consumer"]) for one in state["cursors"]), default=0)
    for one in state["cursors"]:
        moved = datetime.fromtimestamp(one["updated_ts"] / 1000, UTC).isoformat(timespec="seconds")
        lag = "unknown" if one["lag"] is None else f"{one['lag']:,}"
        lines.append(f"{one['consumer']:{width}}  at {one['seq']:,}  lag {lag}  moved {moved}")
    return "\n".join(lines)
