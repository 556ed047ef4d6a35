"""One run of the benchmarks: how large it is, where its files go, what machine it is on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from topics import codec, compiled

ROOT = Path(__file__).resolve().parent.parent
# GNU C11 12.2.0 -mtune=generic -g -O3 …
_FLAGS = re.compile(rb"GNU C\d+ \d[\d.]* (-[ -~]+)")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much work each area does. More gives steadier figures, never other ones."""

    rounds: int
    round_s: float
    # How long a server may take, at most, to become quiet after a round.
    settle_s: float
    # Records in each topic that HTTP readers page through.
    read_records: int
    # Records a local engine appends per round, and those in the topics it reads.
    local_records: int
    bulk_records: int
    recovery_records: int
    memory_records: int
    flat_sizes: tuple[int, ...]
    starts: int
    scale_records: int
    # Watchers of one topic, destinations of one router's source, workers of one queue.
    watchers: int
    destinations: int
    workers: int
    # Records that Spark reads, and those it writes in one job.
    spark_records: int
    spark_sink_records: int
    # Rounds that do not count, until a JVM has compiled what it runs.
    jvm_rounds: int
    # Of one commit.
    stage_bytes: int


FULL = Sizes(
    rounds=7,
    round_s=2.0,
    settle_s=10.0,
    read_records=100_000,
    local_records=200_000,
    bulk_records=1_000_000,
    recovery_records=2_000_000,
    memory_records=1_000_000,
    flat_sizes=(10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
    starts=7,
    scale_records=100_000_000,
    watchers=1000,
    destinations=1000,
    workers=50,
    spark_records=5_000_000,
    spark_sink_records=2_000_000,
    jvm_rounds=4,
    stage_bytes=1000 * 1024 * 1024,
)
QUICK = Sizes(
    rounds=3,
    round_s=0.7,
    settle_s=3.0,
    read_records=20_000,
    local_records=50_000,
    bulk_records=200_000,
    recovery_records=400_000,
    memory_records=300_000,
    flat_sizes=(10_000, 100_000, 1_000_000),
    starts=3,
    scale_records=2_000_000,
    watchers=1000,
    destinations=1000,
    workers=50,
    spark_records=1_000_000,
    spark_sink_records=500_000,
    jvm_rounds=5,
    stage_bytes=256 * 1024 * 1024,
)
# For the test that keeps the benchmarks from rotting; its figures mean nothing.
TINY = Sizes(
    rounds=1,
    round_s=0.05,
    settle_s=0.0,
    read_records=2_000,
    local_records=2_000,
    bulk_records=2_000,
    recovery_records=2_000,
    memory_records=20_000,
    flat_sizes=(2_000, 4_000),
    starts=1,
    scale_records=20_000,
    watchers=20,
    destinations=5,
    workers=3,
    spark_records=2_000,
    spark_sink_records=1_000,
    jvm_rounds=1,
    stage_bytes=1024 * 1024,
)


@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """The choice of shapes for the area `shapes`."""

    # Names of shapes; none: all of them.
    only: tuple[str, ...] = ()
    # The common shapes on a server that asks for API keys, too.
    api_keys: bool = False
    # Checkouts whose servers are measured in turns; none: the server of this one.
    servers: tuple[Path, ...] = ()


class Session:
    def __init__(self, sizes: Sizes, say: Callable[[str], None], shapes: ShapeOptions | None = None) -> None:
        self.sizes = sizes
        self.say = say
        self.shapes = shapes or ShapeOptions()
        # What areas did without, and why.
        self.left_out: dict[str, list[str]] = {}

    def leave_out(self, area: str, what: str) -> None:
        self.say(f"  left out: {what}")
        self.left_out.setdefault(area, []).append(what)

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A directory on a real disk, gone afterwards; `TMPDIR` says which disk."""
        path = Path(tempfile.mkdtemp(prefix="topics-bench-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


class Machine(msgspec.Struct):
    cores: int
    processor: str
    kernel: str
    python: str
    redis: str
    taken: str
    load_before: float
    load_after: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.cores} cores ({self.processor}), {self.kernel}, Python {self.python}, "
            f"Redis {self.redis}; {self.taken}, "
            f"load average {self.load_before:.1f} before and {self.load_after:.1f} after"
        )


def machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        processor=_processor(),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} {_interpreter()}",
        redis=_redis_version(),
        taken=time.strftime("%Y-%m-%d"),
        load_before=os.getloadavg()[0],
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _interpreter() -> str:
    """What is compiled, and how the interpreter was built: profile guidance makes it 5 to 10 % faster."""
    modules = "compiled" if compiled.are_used() else "interpreted"
    return f"({_guidance()}; codec: {codec.NAME}; modules: {modules})"


def _guidance() -> str:
    """That it was not asked of `configure` says nothing: Debian asks `make` for it, and tells nobody."""
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "with profile guidance"
    flags = compiler_flags(_interpreter_file())
    if not flags:
        return "profile guidance: not known"
    return f"{'with' if b'-fprofile-use' in flags else 'without'} profile guidance"


def _interpreter_file() -> Path:
    """The shared library, where the program has its interpreter in one."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        _, slash, name = line.partition("/")
        if "/libpython" in line:
            return Path(slash + name)
    return Path("/proc/self/exe").resolve()


def compiler_flags(program: Path) -> bytes:
    """Those GCC has noted for who debugs the program; none, if that was stripped."""
    return b" ".join(_FLAGS.findall(program.read_bytes()))


def _redis_version() -> str:
    program = shutil.which("redis-server")
    if program is None:
        return "not installed"
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return next((word[2:] for word in text.split() if word.startswith("v=")), "unknown")


def progress(line: str) -> None:
    """Where people look, without mixing into the table."""
    print(line, file=sys.stderr, flush=True)
