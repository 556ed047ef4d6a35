"""Compiles the accelerator beside its sources: `python scripts/accelerate.py` in a clone.

It is optional, so that a machine without a C compiler, or without Python's headers, is no mistake: nothing is
said, and `topics --version` tells whether it is there. `--loud` shows what the compiler says.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "topics" / "values"
_NAMES = ("accelerator.h", "accelerator.c", "sockets.c", "together.c", "keys.c")
SOURCES = tuple(FOLDER / name for name in _NAMES)
FLAGS = ("-O2", "-fno-strict-aliasing", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter")


def compiler() -> list[str] | None:
    """The command, if there is one."""
    for asked in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"):
        words = shlex.split(asked or "")
        if words and shutil.which(words[0]):
            return words
    return None


def headers() -> bool:
    """Whether Python's are there."""
    return (Path(sysconfig.get_path("include")) / "Python.h").exists()


def name() -> str:
    return f"_accelerator{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"


def build(folder: Path, flags: Sequence[str] = ()) -> tuple[Path | None, str]:
    """The module in this folder, or None; and what the compiler has said."""
    command = compiler()
    if command is None:
        return None, "there is no C compiler"
    mark = f"{zlib.crc32(b''.join(source.read_bytes() for source in SOURCES)):08x}"
    target = folder / name()
    # Under another name first: a server that runs has the old one open.
    draft = folder / f".{name()}.{os.getpid()}"
    include = sysconfig.get_path("include")
    compiled = [source for source in SOURCES if source.suffix == ".c"]
    done = subprocess.run(
        [*command, *FLAGS, *flags, f'-DSOURCE="{mark}"', f"-I{include}", "-o", str(draft), *compiled],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        draft.unlink(missing_ok=True)
        return None, done.stderr or f"{command[0]} has failed without a word"
    draft.replace(target)
    return target, done.stderr


def loads(made: Path) -> bool:
    """Whether this Python can: a compiler for another machine makes what it cannot."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import _accelerator"
    tried = [sys.executable, "-I", "-c", program, str(made.parent)]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    made, said = build(FOLDER)
    if "--loud" in sys.argv[1:]:
        print(said or made)
