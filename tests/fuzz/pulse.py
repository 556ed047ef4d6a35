"""How long the loop of a server is busy at a time, as an ordinary client feels it: a process of its own.

Every few milliseconds it asks whether the server is well. How long it waits for the answer says little on a
machine that has other work; so what counts is how much of that time the server's thread was running. Printed
at the end, when its input is closed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from pathlib import Path

REQUEST = b"GET /v0/health HTTP/1.1\r\nHost: pulse\r\n\r\n"
PAUSE_S = 0.005
# A request may hold the loop for so long, and no longer.
STALL_S = 0.05


class Pulse:
    def __init__(self, host: str, port: int, pid: int) -> None:
        self._address = host, port
        self._socket = socket.create_connection(self._address)
        # The loop runs in the first thread.
        self._thread = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self.beats = 0
        self.stalls: list[float] = []
        self.longest_s = 0.0

    def beat(self) -> None:
        before = self._ran_s()
        try:
            self._ask()
        except ConnectionError:
            # Nothing says for how long a server keeps a connection.
            self._socket.close()
            self._socket = socket.create_connection(self._address)
            return
        busy_s = self._ran_s() - before
        self.beats += 1
        self.longest_s = max(self.longest_s, busy_s)
        if busy_s > STALL_S:
            self.stalls.append(round(busy_s, 3))

    def _ask(self) -> None:
        self._socket.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"}"):
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionResetError
            answer += piece

    def _ran_s(self) -> float:
        """For how long the thread has been on a processor, since it began."""
        return int(self._thread.read_text().split()[0]) / 1e9


def main() -> None:
    pulse = Pulse(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        pulse.beat()
    found = {
        "beats": pulse.beats,
        "longest_ms": round(pulse.longest_s * 1000, 1),
        "stalls": len(pulse.stalls),
        "worst_ms": [round(stall * 1000) for stall in sorted(pulse.stalls)[-5:]],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
