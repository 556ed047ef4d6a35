"""What a server process holds and says, seen from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
_COMPLAINTS = ("Traceback", " ERROR ", " CRITICAL ", "Exception", "never awaited", "never retrieved")


class Observed:
    def __init__(self, pid: int, log: Path) -> None:
        self._pid = pid
        self._log = log

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * PAGE

    def sockets(self) -> int:
        """Open sockets, the listening one included."""
        found = 0
        for entry in Path(f"/proc/{self._pid}/fd").iterdir():
            try:
                found += os.readlink(entry).startswith("socket:")
            except FileNotFoundError:
                continue
        return found

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))

    def settle(self, sockets: int, patience_s: float = 45.0) -> int:
        """Wait until no more than so many sockets are open; how many there are then."""
        deadline = time.monotonic() + patience_s
        while (now := self.sockets()) > sockets and time.monotonic() < deadline:
            time.sleep(0.1)
        return now

    def complaints(self) -> list[str]:
        """Lines of the log that tell of a defect."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in _COMPLAINTS)]
