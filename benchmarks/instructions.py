"""Instructions per record, counted by callgrind: what a busy machine cannot change.

`python -m benchmarks.instructions` counts and compares with what is recorded; `--record` records. A count is
only comparable where interpreter, C library and program are of the same make, so these are recorded with it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.figures import Figure
from benchmarks.session import ROOT, Session
from topics import codec, compiled

AREA = "instructions"
RECORDED = Path(__file__).parent / "instructions.json"
STEPS, STRETCHES = 4, 5
# What may be added before it is a mistake.
MOST_ADDED = 0.10
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
_OPTIONS = re.compile(r"--[a-z-]+")
_PATIENCE_S = 600


class Counted(msgspec.Struct):
    """Of what make everything was, and the instructions for one record of each work."""

    make: dict[str, str]
    instructions: dict[str, int]

    def least(self, other: Counted) -> Counted:
        return Counted(
            self.make,
            {name: min(count, other.instructions[name]) for name, count in self.instructions.items()},
        )

    def grown(self, before: Counted) -> dict[str, float]:
        """By what share each work costs more than before; negative if less."""
        known = before.instructions
        return {name: count / known[name] - 1 for name, count in self.instructions.items() if name in known}


def make() -> dict[str, str]:
    version = subprocess.run(
        [sys.executable, "-m", "topics", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        "machine": platform.machine(),
        "interpreter": f"{platform.python_implementation()} {sys.version}".replace("\n", " "),
        # Without values: some are paths of the machine that it was built on.
        "built": " ".join(_OPTIONS.findall(str(sysconfig.get_config_var("CONFIG_ARGS")))),
        "c_library": " ".join(platform.libc_ver()),
        "program": version.stdout.strip(),
    }


def recorded(path: Path = RECORDED) -> Counted:
    return msgspec.json.decode(path.read_bytes(), type=Counted)


def count(steps: int = STEPS, stretches: int = STRETCHES) -> Counted:
    """The least of several stretches: whatever else happens in one of them only adds to it."""
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        raise RuntimeError("valgrind is not installed: `make bench` installs it, or use your packager")
    with tempfile.TemporaryDirectory(prefix="topics-callgrind-") as directory:
        done = _run(Path(directory), steps, stretches)
        totals = [_total(Path(directory) / f"out.{part}") for part in range(1, _parts(Path(directory)) + 1)]
    # The first part ends where the first stretch begins.
    stretch = iter(totals[1:])
    least = {name: min(next(stretch) for _ in range(stretches)) for name in done}
    return Counted(make(), {name: round(total / done[name]) for name, total in least.items()})


def _run(directory: Path, steps: int, stretches: int) -> dict[str, int]:
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-before=getsid", "--quiet"]
    command += [f"--callgrind-out-file={directory}/out", sys.executable, "-m", "benchmarks.instructed"]
    with (directory / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [*command, str(steps), str(stretches)],
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
                codec.SWITCH: os.environ.get(codec.SWITCH, ""),
                # The recorded figures are of the sources.
                compiled.SWITCH: "0",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            subprocess.run(
                ["callgrind_control", "-i", "on", str(process.pid)],
                check=True,
                capture_output=True,
                timeout=_PATIENCE_S,
            )
            told, _ = process.communicate("\n", timeout=_PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"counting failed: {errors.read()[-2000:]}")
    return msgspec.json.decode(told, type=dict[str, int])


def judged() -> tuple[Counted, dict[str, float]]:
    """With those that take too many, if they are comparable. What seems too much is counted again."""
    now, before = count(), recorded()

    def too_much() -> dict[str, float]:
        return {name: share for name, share in now.grown(before).items() if share > MOST_ADDED}

    if now.make != before.make:
        return now, {}
    for _ in range(2):
        if too_much():
            now = now.least(count())
    return now, too_much()


def _parts(directory: Path) -> int:
    return sum(1 for _ in directory.glob("out.*"))


def _total(path: Path) -> int:
    found = _TOTALS.search(path.read_text())
    assert found is not None, path
    return int(found[1])


def run(session: Session) -> Iterator[Figure]:
    session.say("  callgrind, which takes a while")
    now, before = count(), recorded()
    grown = now.grown(before) if now.make == before.make else {}
    for name, instructions in now.instructions.items():
        note = f"{grown[name]:+.1%} against what is recorded" if name in grown else ""
        yield Figure(AREA, name, instructions, "instructions per record", note=note)


def told(now: Counted, before: Counted) -> list[str]:
    """The change, a line each."""
    grown = now.grown(before)
    lines = [
        f"{instructions:>9,} {f'{grown[name]:+.1%}' if name in grown else 'new':>8}  {name}"
        for name, instructions in now.instructions.items()
    ]
    if now.make != before.make:
        lines.append("recorded on another make of interpreter, C library or program: not judged")
    return lines


def main() -> int:
    if "--record" in sys.argv:
        now = count()
        RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(now), indent=2) + b"\n")
        return 0
    now, too_much = judged()
    print(*told(now, recorded()), sep="\n")
    return int(bool(too_much))


if __name__ == "__main__":
    sys.exit(main())
