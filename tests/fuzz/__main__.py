"""Sends fuzzed requests to a server of its own; fails when it answers 5xx, complains, stalls, leaks or grows.

python -m tests.fuzz --requests 1000000 --seed 1 [--sanitised]

Over all routes, as bytes and as the OpenAPI document has them; over event streams and WebSockets. Meanwhile
another process looks whether the server's loop is busy for more than 50 ms at a time, by processor time:
other programs on the machine do not count. Which routes held it longest is told as well.

With --sanitised, the native codec is compiled again with AddressSanitizer and UndefinedBehaviorSanitizer, and
all memory of Python comes from the checked allocator. Any report of theirs is a failure. The checks take
processor time, so stalls are reported, but are no failures: that limit is for a run without --sanitised.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from tests.fuzz.attack import Attack
from tests.fuzz.conversations import Conversations
from tests.fuzz.observe import Observed
from tests.fuzz.schema import SchemaFuzz, prepare
from tests.fuzz.servers import BEARER, FuzzedServer, SanitisedServer
from tests.support import sanitised

ROUNDS = 10
# Rounds before memory has settled.
WARM_ROUNDS = 4
# One in so many requests is made from the OpenAPI document; those are far slower to make up.
SCHEMA_SHARE = 10
# One in so many comes from a client that listens to streams or talks over a socket.
TALK_SHARE = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep what the server logged")
    parser.add_argument(
        "--sanitised",
        action="store_true",
        help="check every access to memory; needs a C compiler with AddressSanitizer",
    )
    arguments = parser.parse_args()
    if arguments.sanitised and sanitised.library() is None:
        parser.error("no C compiler with AddressSanitizer, or no headers of Python")
    kind = SanitisedServer if arguments.sanitised else FuzzedServer
    with tempfile.TemporaryDirectory(prefix="topics-fuzz-") as directory:
        report = Campaign(kind(Path(directory)), arguments.seed).run(arguments.requests)
        if arguments.log is not None:
            shutil.copyfile(Path(directory) / "server.log", arguments.log)
    print(json.dumps(report, indent=2))
    return 1 if report["failures"] else 0


class Campaign:
    def __init__(self, server: FuzzedServer, seed: int) -> None:
        self._seed = seed
        self._server = server

    def run(self, requests: int, *, rounds: int = ROUNDS, is_whole: bool = True) -> dict[str, Any]:
        """Without the requests of the document and the look for stalls, if not whole."""
        self._server.start()
        try:
            report = self._rounds(requests // rounds, rounds, is_whole=is_whole)
        except Exception as error:
            # Whoever asks a server that has ended fails in some way of his own; what ended it is told below.
            if not self._server.has_ended():
                raise
            report = {"seed": self._seed, "failures": [f"the server has ended: {error!r}"]}
        finally:
            code = self._server.end(signal.SIGTERM)
        if code:
            report["failures"].append(f"it ended with exit code {code}")
        report["failures"] += sanitised.reported(self._server.log())
        return report

    def _rounds(self, requests: int, rounds: int, *, is_whole: bool) -> dict[str, Any]:
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
        if felt["stalls"] and self._server.has_stall_limit:
            failures.append(f"{felt['stalls']} stalls of more than 50 ms, the worst: {felt['worst']}")
        # The last question of ours may be about to end.
        left = observed.settle(sockets)
        if left > sockets:
            failures.append(f"{left - sockets} sockets are still open")
        grown = resident[-1] - max(resident[:WARM_ROUNDS])
        if len(resident) > WARM_ROUNDS and grown > self._server.may_grow_bytes:
            failures.append(f"memory grew by {grown >> 20} MiB after settling")
        # A server whose writes are off goes on answering, and most of what follows would try nothing.
        writing = self._server.request("GET", "/v0/ready?for=writes")
        if writing.status != 200:
            failures.append(f"takes no writes afterwards: {writing.body!r}")
        return failures


if __name__ == "__main__":
    sys.exit(main())
