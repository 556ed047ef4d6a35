"""Sends fuzzed requests to a server of its own; fails when it answers 5xx, complains, stalls, leaks or grows.

python -m tests.fuzz --requests 1000000 --seed 1

Over all routes, as bytes and as the OpenAPI document has them; over event streams and WebSockets. Meanwhile
another process looks whether the server's loop is busy for more than 50 ms at a time, by processor time:
other programs on the machine do not count. Which routes held it longest is told as well.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from tests.fuzz import corpus
from tests.fuzz.attack import Attack
from tests.fuzz.conversations import Conversations
from tests.fuzz.observe import Observed
from tests.fuzz.schema import SchemaFuzz, prepare
from tests.support import ServerProcess

# Everything a client can make the server keep has a bound here, so memory must have one too.
BOUNDS = {
    "TOPICS_MAX_TOPICS": "100",
    "TOPICS_MAX_ROUTERS": "20",
    "TOPICS_MAX_WATCH_SESSIONS": "50",
    "TOPICS_MAX_BODY_BYTES": "1048576",
    "TOPICS_MAX_TOTAL_BYTES": "8388608",
    "TOPICS_HOT_BYTES": "4194304",
}
ROUNDS = 10
# Rounds before memory has settled, and what it may grow by after them.
WARM_ROUNDS = 4
MAY_GROW_BYTES = 24 * 1024 * 1024
# One in so many requests is made from the OpenAPI document; those are far slower to make up.
SCHEMA_SHARE = 10
# One in so many comes from a client that listens to streams or talks over a socket.
TALK_SHARE = 4
BEARER = {"Authorization": f"Bearer {corpus.TOKEN}"}
# The server that measures by processor time how long its requests hold the loop.
PROGRAM = "processor_time_server.py"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep what the server logged")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="topics-fuzz-") as directory:
        report = Campaign(Path(directory), arguments.seed).run(arguments.requests)
        if arguments.log is not None:
            shutil.copyfile(Path(directory) / "server.log", arguments.log)
    print(json.dumps(report, indent=2))
    return 1 if report["failures"] else 0


class FuzzedServer(ServerProcess):
    command = (sys.executable, str(Path(__file__).parent.with_name("contract") / PROGRAM), "serve")

    def holds(self) -> dict[str, float]:
        """The routes that held the loop longest, and for how many milliseconds at a time."""
        metrics = self.request(
            "GET", "/v0/metrics", None, BEARER | {"Accept-Encoding": "identity"}
        ).body.decode()
        found = re.findall(r"^topics_loop_stall_seconds\{(.*)\} (.*)$", metrics, re.MULTILINE)
        held = {route: round(float(held_s) * 1000, 1) for route, held_s in found}
        return dict(sorted(held.items(), key=lambda item: -item[1])[:5])


class Campaign:
    def __init__(self, directory: Path, seed: int) -> None:
        self._seed = seed
        self._server = FuzzedServer(directory, **BOUNDS, TOPICS_API_KEYS=corpus.TOKEN)

    def run(self, requests: int, *, rounds: int = ROUNDS, is_whole: bool = True) -> dict[str, object]:
        """Without the requests of the document and the look for stalls, if not whole."""
        self._server.start()
        try:
            return self._rounds(requests // rounds, rounds, is_whole=is_whole)
        finally:
            self._server.stop()

    def _rounds(self, requests: int, rounds: int, *, is_whole: bool) -> dict[str, object]:
        observed = Observed(self._server.pid, self._server.log_file)
        prepare(lambda method, path, body: self._server.request(method, path, body, BEARER))
        document = self._server.request("GET", "/v0/openapi.json").json
        attack = Attack(self._server.host_and_port, seed=self._seed)
        talks = Conversations(self._server.host_and_port, seed=self._seed + 2)
        schema = SchemaFuzz(document, self._server.url, headers=BEARER)
        sockets, resident = observed.sockets(), []
        pulse = self._take_pulse() if is_whole else None
        started = time.monotonic()
        for number in range(rounds):
            if is_whole:
                try:
                    schema.run(requests // SCHEMA_SHARE, seed=self._seed + number)
                except BaseExceptionGroup as error:
                    talks.offences.append(str(error.exceptions[0]).encode())
            uvloop.run(talks.run(requests // TALK_SHARE))
            # So many in all, however many the others were good for.
            done = attack.attempts + talks.attempts + schema.statuses.total()
            uvloop.run(attack.run(requests * (number + 1) - done))
            # One is the pulse.
            left = observed.settle(sockets + 1)
            resident.append(observed.resident_bytes())
            told = f"{attack.attempts} raw, {talks.attempts} in talks, {schema.statuses.total()} by schema"
            told += f", {resident[-1] >> 20} MiB"
            print(f"round {number + 1}: {told}, {left} sockets", file=sys.stderr)
        felt = {"stalls": 0} if pulse is None else json.loads(pulse.communicate()[0])
        return {
            "seed": self._seed,
            "requests": attack.attempts + talks.attempts + schema.statuses.total(),
            "answers_raw": dict(sorted(attack.statuses.items())),
            "answers_in_talks": dict(sorted(talks.statuses.items())),
            "messages": dict(talks.messages.most_common()),
            "answers_by_schema": dict(sorted(schema.statuses.items())),
            "seconds": round(time.monotonic() - started, 1),
            "resident_mib": [size >> 20 for size in resident],
            "pulse": felt,
            "held_the_loop_ms": self._server.holds(),
            "failures": self._failures(
                [*attack.offences, *talks.offences], observed, sockets, resident, felt
            ),
        }

    def _take_pulse(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.fuzz.pulse", *map(str, self._server.host_and_port)]
        command.append(str(self._server.pid))
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _failures(
        self,
        offences: list[bytes],
        observed: Observed,
        sockets: int,
        resident: list[int],
        felt: dict[str, Any],
    ) -> list[str]:
        failures = [f"offence: {data[:300]!r}" for data in offences[:20]]
        failures += [f"log: {line}" for line in observed.complaints()[:20]]
        if felt["stalls"]:
            failures.append(f"{felt['stalls']} stalls of more than 50 ms, the worst: {felt['worst']}")
        # The last question of ours may be about to end.
        left = observed.settle(sockets)
        if left > sockets:
            failures.append(f"{left - sockets} sockets are still open")
        grown = resident[-1] - max(resident[:WARM_ROUNDS])
        if len(resident) > WARM_ROUNDS and grown > MAY_GROW_BYTES:
            failures.append(f"memory grew by {grown >> 20} MiB after settling")
        # A server whose writes are off goes on answering, and most of what follows would try nothing.
        writing = self._server.request("GET", "/v0/ready?for=writes")
        if writing.status != 200:
            failures.append(f"takes no writes afterwards: {writing.body!r}")
        return failures


if __name__ == "__main__":
    sys.exit(main())
