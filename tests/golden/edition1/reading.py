"""A copy of a kept directory, and what a server on it says about everything it holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support import ServerProcess

EDITION = Path(__file__).parent
Facts = dict[str, Any]
# Where the page that outlives a killed process says which start of the machine it was written in.
_BOOT_ID = slice(8, 40)
# How long a request took, who read last: true of one moment, not of the data.
_PASSING = ("performance", "last_read_ts", "effective_priority")


def copied(name: str, target: Path, *, rebooted: bool = False) -> ServerProcess:
    """A server that is not started yet, on a copy: reading changes files.

    It finds what it would have found on the machine of the fixture, or there after the machine was restarted.
    """
    shutil.copytree(EDITION / name / "data", target / "data")
    environment = {}
    if (EDITION / name / "cold").exists():
        cold = shutil.copytree(EDITION / name / "cold", target / "cold")
        environment["TOPICS_COLD_DIR"] = str(cold)
    witness = target / "data" / "witness"
    page = bytearray(witness.read_bytes())
    this_boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip().replace(b"-", b"")
    page[_BOOT_ID] = bytes(32) if rebooted else this_boot
    witness.write_bytes(page)
    return ServerProcess(target, **environment)


def kept(name: str) -> Facts:
    """What was seen when the fixture was made."""
    facts: Facts = json.loads((EDITION / name).read_text())
    return facts


def seen(server: ServerProcess) -> Facts:
    """Every topic, record, gap, cursor and router, over HTTP only."""
    names = [one["topic"] for one in _ask(server, "GET", "/v0/topics?page_size=1000")["topics"]]
    # Reads bring destinations of routers up to date, so all of them come before anything is counted.
    read = {name: _read(server, name) for name in names}
    listed = _ask(server, "GET", "/v0/routers?page_size=1000")
    return {
        "topics": {
            name: {
                "state": _ask(server, "GET", f"/v0/topics/{name}"),
                "ledger": _ask(server, "GET", f"/v0/topics/{name}/ledger"),
                "cursors": _ask(server, "GET", f"/v0/topics/{name}/cursors"),
                **read[name],
            }
            for name in names
        },
        "routers": [_ask(server, "GET", f"/v0/routers/{quote(one['router'])}") for one in listed["routers"]],
    }


def _read(server: ServerProcess, topic: str) -> Facts:
    records, gaps, at = [], [], 0
    while True:
        asked = {"from_seq": at, "limit": 5, "include_tags": True}
        page = _ask(server, "POST", f"/v0/topics/{topic}/diff", asked)
        records += page["records"]
        gaps += [page["tombstone"]] if page["tombstone"] else []
        if page["caught_up"]:
            return {"records": records, "gaps": gaps}
        at = page["next_from_seq"]


def _ask(server: ServerProcess, method: str, path: str, body: Any = None) -> Facts:
    answer: Facts = server.request(method, path, body).ok()
    return {name: value for name, value in answer.items() if name not in _PASSING}
