"""The compiled generator, from the side of whoever wants load: it costs less than any server does."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from benchmarks.generator import Tally
from benchmarks.load import GeneratorProcess

SOURCE = Path(__file__).parent / "generator.c"


# What the generator replaces in a request: by a number that is sent once only, in as many hexadecimal digits,
# and by the next stream id of HTTP/2.
NUMBER, STREAM_ID = b"@" * 16, b"\xff" * 4


class Framing(Enum):
    """How a reply tells its length, and what a success has near its start."""

    HTTP = b"h", b"HTTP/1.1 20"
    # The status 200 of HPACK's static table.
    HTTP2 = b"f", b"\x88"
    WEBSOCKET = b"w", b'"op":"ack"'


class Sent(NamedTuple):
    """A request, and how the end of its reply is known: by its own head, by lines, or by its last bytes."""

    data: bytes
    lines: int = 0
    end: bytes = b""
    framing: Framing = Framing.HTTP
    # With HTTP/1.1: how many replies the data asks for, and how each begins.
    replies: int = 1
    status: bytes = b""

    def encoded(self) -> bytes:
        mode, expected = self.framing.value
        amount = self.replies
        if self.lines:
            mode, expected, amount = b"l", b"", self.lines
        elif self.end:
            mode, expected = b"s", self.end
        elif self.status:
            expected = b"HTTP/1.1 " + self.status
        return b"%b %d %d %d\n%b%b" % (mode, amount, len(self.data), len(expected), self.data, expected)


class Target(NamedTuple):
    host: str
    port: int


class Greeting(NamedTuple):
    """What is said on a connection before any request, and how the answer ends."""

    data: bytes
    end: bytes


class Plan(NamedTuple):
    """Of one connection: what it says first, one after the other, then the requests that it goes round."""

    greetings: Sequence[Greeting]
    requests: list[Sent]
    # The number of requests that are sent once; the others are repeated.
    once: int = 0


def compiled(directory: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed for the generator (Debian: gcc and libc6-dev)")
    program = directory / "generator"
    command = [compiler, "-O2", "-D_GNU_SOURCE", "-o", str(program), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the generator could not be compiled: {done.stderr.strip()[-500:]}")
    return program


class CompiledLoad(GeneratorProcess):
    """The generator in C."""

    def __init__(self, program: Path, target: Target, plans: list[Plan], per_reply: int) -> None:
        """`per_reply`: the records in each request."""
        self._per_reply = per_reply
        job = f"{target.host} {target.port} {len(plans)}\n".encode()
        for plan in plans:
            job += b"%d %d %d\n" % (len(plan.requests), plan.once, len(plan.greetings))
            for said in plan.greetings:
                job += b"%d %d\n%b%b" % (len(said.data), len(said.end), said.data, said.end)
            job += b"".join(request.encoded() for request in plan.requests)
        super().__init__([program], job)

    def run(self, seconds: float) -> tuple[int, float]:
        """Records moved, in how many seconds."""
        tally = self.tally(seconds)
        return tally.replies * self._per_reply, tally.seconds

    def steadily(self, per_second: float) -> Callable[[float], tuple[int, float]]:
        """A round for a contender in which so many requests are due a second."""

        def run(seconds: float) -> tuple[int, float]:
            tally = self.tally(seconds, per_second)
            return tally.replies * self._per_reply, tally.seconds

        return run

    def paced(self, seconds: float, per_second: float) -> tuple[float, float, float]:
        """How late replies are when so many requests are due a second, in milliseconds: p50, p99, p99.9."""
        return self.tally(seconds, per_second).late_ms

    def tally(self, seconds: float, per_second: float = 0.0) -> Tally:
        """One round; 0 a second: a connection sends when it has its reply."""
        return self.ask(b"%f %f\n" % (seconds, per_second))


@contextmanager
def answering(program: Path) -> Iterator[int]:
    """A server that does nothing but answer; its port."""
    process = subprocess.Popen([program, "answer"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
