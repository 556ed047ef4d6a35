"""How long the loop of a server is busy at a time, as an ordinary client feels it: a process of its own.

Every few milliseconds it asks whether the server is well. How long it waits for the answer says little on a
machine that has other work; so what counts is how much of that time the server's thread was running, with all
that it did before the answer. How long that thread was ready meanwhile, and had no processor, is told beside
it. Printed at the end, when its input is closed.

For as long as this process has no processor itself, the answer may be there and the server busy with others.
So it asks to come before all others, where it may; what it was late by all the same is taken off a stall, and
a stall that is none without it is told as unsure.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

REQUEST = b"GET /v0/health HTTP/1.1\r\nHost: pulse\r\n\r\n"
PAUSE_S = 0.005
# A request may hold the loop for so long, and no longer.
STALL_S = 0.05
# Before a server and its clients, if those were started with one.
_PRIORITY = 20


class Stall(NamedTuple):
    busy_s: float
    waited_s: float
    took_s: float
    late_s: float

    def told(self) -> str:
        busy, waited, took, late = (round(seconds * 1000) for seconds in self)
        return f"{busy} ms busy and {waited} ms without a processor, of {took} ms; seen {late} ms late"


class Thread:
    """One of a process, as the kernel keeps account of it."""

    def __init__(self, process: int | str, thread: int) -> None:
        self._account = Path(f"/proc/{process}/task/{thread}/schedstat")

    def used_s(self) -> tuple[float, float]:
        """For how long it has been on a processor since it began, and has waited for one."""
        ran, waited = self._account.read_text().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9


class Pulse:
    def __init__(self, host: str, port: int, pid: int) -> None:
        self._address = host, port
        self._socket = socket.create_connection(self._address)
        # The loop runs in the first thread.
        self._server, self._self = Thread(pid, pid), Thread("self", os.getpid())
        self.beats = 0
        self.stalls: list[Stall] = []
        self.unsure: list[Stall] = []
        self.longest_s = 0.0

    def beat(self) -> None:
        began_s = time.monotonic()
        _, late_s = self._self.used_s()
        ran_s, waited_s = self._server.used_s()
        try:
            self._ask()
        except ConnectionError:
            # Nothing says for how long a server keeps a connection.
            self._socket.close()
            self._socket = socket.create_connection(self._address)
            return
        took_s = time.monotonic() - began_s
        ran_later_s, waited_later_s = self._server.used_s()
        late_s = self._self.used_s()[1] - late_s
        stall = Stall(ran_later_s - ran_s, waited_later_s - waited_s, took_s, late_s)
        self.beats += 1
        self.longest_s = max(self.longest_s, stall.busy_s - late_s)
        if stall.busy_s - late_s > STALL_S:
            self.stalls.append(stall)
        elif stall.busy_s > STALL_S:
            self.unsure.append(stall)

    def close(self) -> None:
        self._socket.close()

    def _ask(self) -> None:
        self._socket.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"}"):
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionResetError
            answer += piece


def main() -> None:
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    pulse = Pulse(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        pulse.beat()
    found = {
        "beats": pulse.beats,
        "longest_ms": round(pulse.longest_s * 1000, 1),
        "stalls": len(pulse.stalls),
        "worst": [stall.told() for stall in sorted(pulse.stalls)[-5:]],
        "unsure": [stall.told() for stall in sorted(pulse.unsure)[-5:]],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
