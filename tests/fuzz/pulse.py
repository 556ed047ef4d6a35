"""How long the loop of a server is busy at a time, as an ordinary client feels it: a process of its own.

Every few milliseconds it asks whether the server is well. How long it waits for the answer says little on a
machine that has other work; so what counts is how much of that time the server's thread was running, with all
that it did before the answer. How long that thread was ready meanwhile, and had no processor, is told beside
it. Printed at the end, when its input is closed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

REQUEST = b"GET /v0/health HTTP/1.1\r\nHost: pulse\r\n\r\n"
PAUSE_S = 0.005
# A request may hold the loop for so long, and no longer.
STALL_S = 0.05


class Stall(NamedTuple):
    busy_s: float
    waited_s: float
    took_s: float

    def told(self) -> str:
        busy, waited, took = (round(seconds * 1000) for seconds in self)
        return f"{busy} ms busy and {waited} ms without a processor, of {took} ms"


class Pulse:
    def __init__(self, host: str, port: int, pid: int) -> None:
        self._address = host, port
        self._socket = socket.create_connection(self._address)
        # The loop runs in the first thread.
        self._thread = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self.beats = 0
        self.stalls: list[Stall] = []
        self.longest_s = 0.0

    def beat(self) -> None:
        began_s = time.monotonic()
        ran_s, waited_s = self._used_s()
        try:
            self._ask()
        except ConnectionError:
            # Nothing says for how long a server keeps a connection.
            self._socket.close()
            self._socket = socket.create_connection(self._address)
            return
        took_s = time.monotonic() - began_s
        ran_later_s, waited_later_s = self._used_s()
        stall = Stall(ran_later_s - ran_s, waited_later_s - waited_s, took_s)
        self.beats += 1
        self.longest_s = max(self.longest_s, stall.busy_s)
        if stall.busy_s > STALL_S:
            self.stalls.append(stall)

    def _ask(self) -> None:
        self._socket.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"}"):
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionResetError
            answer += piece

    def _used_s(self) -> tuple[float, float]:
        """For how long the thread has been on a processor since it began, and has waited for one."""
        ran, waited = self._thread.read_text().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9


def main() -> None:
    pulse = Pulse(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        pulse.beat()
    found = {
        "beats": pulse.beats,
        "longest_ms": round(pulse.longest_s * 1000, 1),
        "stalls": len(pulse.stalls),
        "worst": [stall.told() for stall in sorted(pulse.stalls)[-5:]],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
