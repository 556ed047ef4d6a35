"""The command in a pseudo-terminal, as a person has it in front of them."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PATIENCE_S = 60.0
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One command. What it shows is collected; what is typed goes to it."""

    # A second is enough for people; a machine that runs many tests at once may need longer.
    command, patience = (sys.executable, "-m", "topics"), ("--wait", "60")

    def __init__(self, *arguments: str, url: str, given: Path | None = None, **environment: str) -> None:
        """`given`: a file that is its standard input."""
        self._end, inside = pty.openpty()
        source = inside if given is None else os.open(given, os.O_RDONLY)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        clean.pop("NO_COLOR", None)
        ours = {"TOPICS_URL": url, "TERM": "xterm-256color", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [*self.command, *arguments, *self.patience],
            stdin=source,
            stdout=inside,
            stderr=inside,
            env=clean | ours | environment,
            start_new_session=True,
        )
        for descriptor in {inside, source}:
            os.close(descriptor)
        self.raw = ""

    @property
    def shown(self) -> str:
        """Without colours."""
        return _COLOURS.sub("", self.raw).replace("\r\n", "\n")

    def await_text(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            assert self._read(), self.shown

    def _read(self) -> bool:
        """False when it has closed its end."""
        if select.select([self._end], [], [], 0.1)[0]:
            try:
                piece = os.read(self._end, 65536)
            except OSError:
                return False
            self.raw += piece.decode("utf-8", "replace")
            return bool(piece)
        return True

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Its exit code; everything it showed is collected."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._end)
