"""A generator process, from the side of whoever wants load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.generator import Job, Tally
from benchmarks.session import ROOT


class GeneratorFailed(RuntimeError):
    def __str__(self) -> str:
        return "the load generator failed; its error is above"


class GeneratorProcess:
    """Connected once, run as often as you like."""

    def __init__(self, command: Sequence[str | Path], job: bytes) -> None:
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(job)

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise GeneratorFailed from None

    def ask(self, order: bytes) -> Tally:
        """What came of a round that was ordered so."""
        self._send(order)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise GeneratorFailed
        return msgspec.json.decode(line, type=Tally)

    def close(self) -> None:
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Load(GeneratorProcess):
    """The generator in Python, which can look at every reply."""

    def __init__(self, job: Job, *, gives_way: bool = False) -> None:
        """`gives_way`: it stands for other machines, so whoever is measured need not wait for a processor."""
        encoded = msgspec.msgpack.encode(job)
        command = [*(("nice",) if gives_way else ()), sys.executable, "-m", "benchmarks.generator"]
        super().__init__(command, b"%d\n%b" % (len(encoded), encoded))

    def run(self, seconds: float) -> Tally:
        return self.ask(b"%f\n" % seconds)

    def moving(self, records_per_reply: int) -> Callable[[float], tuple[int, float]]:
        """A round for a contender: seconds to run, to records moved in how many seconds."""

        def run(seconds: float) -> tuple[int, float]:
            tally = self.run(seconds)
            return tally.replies * records_per_reply, tally.seconds

        return run

    def verifying(self) -> Callable[[float], tuple[int, float]]:
        """The same, counting what was decoded and found right."""

        def run(seconds: float) -> tuple[int, float]:
            tally = self.run(seconds)
            return tally.verified, tally.seconds

        return run
