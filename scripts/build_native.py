"""Compile the native codec next to the Python code that uses it: `python scripts/build_native.py` in a clone.

It is optional. Without a C compiler, or without the headers of Python, the script does nothing and reports
no error. `--loud` prints the messages of the compiler.
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

SRC = Path(__file__).parents[1] / "src"
SOURCE = SRC / "_native" / "codec.c"
# The package that imports the module, relative to `src`.
PACKAGE = "topics/codec"
FILE_NAME = f"_native{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
FLAGS = ("-O2", "-fno-strict-aliasing", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter")


def compiler() -> list[str] | None:
    """The command, if there is one."""
    for asked in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"):
        words = shlex.split(asked or "")
        if words and shutil.which(words[0]):
            return words
    return None


def headers() -> bool:
    """Whether the headers of Python are installed."""
    return (Path(sysconfig.get_path("include")) / "Python.h").exists()


def build(folder: Path, flags: Sequence[str] = ()) -> tuple[Path | None, str]:
    """Compile the module into this folder; None if that fails. Also the messages of the compiler."""
    command = compiler()
    if command is None:
        return None, "there is no C compiler"
    # Python refuses a module that was compiled from another state of the source.
    mark = f"{zlib.crc32(SOURCE.read_bytes()):08x}"
    # Under another name first: a running server has the old one open.
    draft = folder / f".{FILE_NAME}.{os.getpid()}"
    include = sysconfig.get_path("include")
    done = subprocess.run(
        [*command, *FLAGS, *flags, f'-DSOURCE="{mark}"', f"-I{include}", "-o", str(draft), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        draft.unlink(missing_ok=True)
        return None, done.stderr or f"{command[0]} has failed without a message"
    target = folder / FILE_NAME
    draft.replace(target)
    return target, done.stderr


def loads(made: Path) -> bool:
    """Whether this Python can import it: a compiler for another machine makes files that it cannot."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import _native"
    tried = [sys.executable, "-I", "-c", program, str(made.parent)]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    made, said = build(SRC / PACKAGE)
    if "--loud" in sys.argv[1:]:
        print(said or made)
