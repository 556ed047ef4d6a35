"""The server under fuzz: as it is, or with every access to memory checked."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.fuzz import corpus
from tests.support import ServerProcess, sanitised
from topics import codec

# Everything a client can make the server keep has a bound here, so memory must have one too.
BOUNDS = {
    "TOPICS_MAX_TOPICS": "100",
    "TOPICS_MAX_ROUTERS": "20",
    "TOPICS_MAX_WATCH_SESSIONS": "50",
    "TOPICS_MAX_BODY_BYTES": "1048576",
    "TOPICS_MAX_TOTAL_BYTES": "8388608",
    "TOPICS_HOT_BYTES": "4194304",
}
BEARER = {"Authorization": f"Bearer {corpus.TOKEN}"}
# A process that is about to end has ended then.
_ENDS_IN_S = 5.0
_HERE = Path(__file__).parent


class FuzzedServer(ServerProcess):
    # It measures by processor time how long its requests hold the loop.
    command = (sys.executable, str(_HERE.with_name("contract") / "processor_time_server.py"), "serve")
    # A request may hold the loop for 50 ms, and no longer.
    has_stall_limit = True
    # What its memory may grow by, once it has settled.
    may_grow_bytes = 24 * 1024 * 1024

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, **BOUNDS, TOPICS_API_KEYS=corpus.TOKEN)

    def has_ended(self) -> bool:
        """Or is about to: its connections go first."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_IN_S)
        return self.process.poll() is not None

    def holds(self) -> dict[str, float]:
        """The routes that held the loop longest, and for how many milliseconds at a time."""
        metrics = self.request(
            "GET", "/v0/metrics", None, BEARER | {"Accept-Encoding": "identity"}
        ).body.decode()
        found = re.findall(r"^topics_loop_stall_seconds\{(.*)\} (.*)$", metrics, re.MULTILINE)
        held = {route: round(float(held_s) * 1000, 1) for route, held_s in found}
        return dict(sorted(held.items(), key=lambda item: -item[1])[:5])


class SanitisedServer(FuzzedServer):
    """A server with a sanitised codec: every access to memory by the codec or by Python is checked.

    The checks take two to three times as long, so stalls of the loop are reported, but are no failures.
    """

    patience_s = 120.0
    has_stall_limit = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        sanitise(self)


def sanitise(server: ServerProcess) -> None:
    """Give this server a sanitised native codec, even if TOPICS_TEST_CODEC chooses the one in Python."""
    module = sanitised.build(server.directory / "sanitised")
    server.command = (sys.executable, str(_HERE / "sanitised_server.py"), str(module), "serve")
    server.patience_s = SanitisedServer.patience_s
    server.environment |= sanitised.environment() | {codec.SWITCH: "native"}
