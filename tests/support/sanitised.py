"""The native codec with every access to memory checked, for a process that preloads the checker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts import build_native

_FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")
# Python does not free everything at its end, so leaks are not reported. A small quarantine and short stacks
# keep the memory small: the checker stores every stack for ever, and an interpreter has very many.
_OPTIONS = "detect_leaks=0:quarantine_size_mb=16:thread_local_quarantine_size_kb=256:malloc_context_size=2"
_REPORTS = ("ERROR: AddressSanitizer", "AddressSanitizer:", ": runtime error: ")
# Of one report.
_LINES = 60


def library() -> str | None:
    """Return the library of the checker if the compiler has one."""
    command = build_native.compiler()
    if command is None or not build_native.headers():
        return None
    asked = [*command, "-print-file-name=libasan.so"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # A compiler without it prints only the name.
    return found if Path(found).is_absolute() else None


def build(folder: Path) -> Path:
    """Compile the module into this folder."""
    folder.mkdir(exist_ok=True)
    made, said = build_native.build(folder, _FLAGS)
    if made is None:
        raise RuntimeError(said)
    return made


def environment() -> dict[str, str]:
    """Return variables that make Python and Arrow use the checked allocator for every object and buffer."""
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
    """Return the lines of the first report in a log."""
    lines = log.splitlines()
    for at, line in enumerate(lines):
        if any(mark in line for mark in _REPORTS):
            return lines[at : at + _LINES]
    return []
