"""The native codec with every access to memory checked, for a process that preloads the checker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts import build_native

_FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")
# Python does not free everything at its end, so what it has then is not asked for. For memory to be told from
# outside, little of what was freed is kept back, and of who asked for memory only the nearest caller: all
# ways to there are remembered for ever, and through an interpreter there is no end of them.
_OPTIONS = "detect_leaks=0:quarantine_size_mb=16:thread_local_quarantine_size_kb=256:malloc_context_size=2"
_REPORTS = ("ERROR: AddressSanitizer", "AddressSanitizer:", ": runtime error: ")
# Of one report: what was done, where, and who had the memory.
_LINES = 60


def library() -> str | None:
    """The checker's, where there is a compiler that has one."""
    command = build_native.compiler()
    if command is None or not build_native.headers():
        return None
    asked = [*command, "-print-file-name=libasan.so"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # A compiler without it says only the name again.
    return found if Path(found).is_absolute() else None


def build(folder: Path) -> Path:
    """Compile the module into this folder."""
    folder.mkdir(exist_ok=True)
    made, said = build_native.build(folder, _FLAGS)
    if made is None:
        raise RuntimeError(said)
    return made


def environment() -> dict[str, str]:
    """For the process: every object of Python and every buffer of Arrow comes from the checked allocator."""
    checker = library()
    if checker is None:
        raise RuntimeError("no C compiler with AddressSanitizer, or no headers of Python")
    return {
        # Without the second, the first C++ exception of a library would end the process.
        "LD_PRELOAD": f"{checker} libstdc++.so.6",
        "ASAN_OPTIONS": _OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def reported(log: str) -> list[str]:
    """The lines of the first report in what a process has said, if there is any."""
    lines = log.splitlines()
    for at, line in enumerate(lines):
        if any(mark in line for mark in _REPORTS):
            return lines[at : at + _LINES]
    return []
