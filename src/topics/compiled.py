"""The modules that mypyc compiles, and a finder that imports them instead of their sources.

`scripts/compile_modules.py` and the build of a wheel compile them into the folder `_compiled`. They are used
if their stamp fits: it is made of the sources, the version of Python and the platform. Compiled modules share
memory, so all of them are used or none. The environment variable TOPICS_TEST_COMPILED chooses: with 0, the
sources are used, and with 1, compiled modules that are missing or do not fit are an error.
"""

import os
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from typing import Any

SWITCH = "TOPICS_TEST_COMPILED"
MODULES = (
    "topics.flow.admission",
    "topics.http.connection",
    "topics.http.context",
    "topics.http.dispatch",
    "topics.http.exchange",
    "topics.http.known_heads",
    "topics.http.request",
    "topics.http.routes.appends",
    "topics.log.topic",
    "topics.log.watermarks",
    "topics.log.write.append",
    "topics.log.write.commit_queue",
    "topics.log.write.idempotency",
    "topics.log.write.operation",
)
# What the compiled modules share is a module, too.
LIBRARY = "topics_compiled__mypyc"
_HERE = os.path.dirname(__file__)
FOLDER = os.path.join(_HERE, "_compiled")
# The name of a file in it.
STAMP = "stamp"


def source_of(name: str) -> str:
    """The path of a module, relative to the folder that has the package."""
    return name.replace(".", "/") + ".py"


def file_of(name: str) -> str:
    """The path of a compiled module, relative to the folder."""
    return name.replace(".", "/") + EXTENSION_SUFFIXES[0]


def stamp() -> str:
    """What compiled modules have to fit."""
    from zlib import crc32

    checksum = 0
    for name in MODULES:
        with open(os.path.join(os.path.dirname(_HERE), source_of(name)), "rb") as source:
            checksum = crc32(source.read(), checksum)
    return f"{checksum:08x}{EXTENSION_SUFFIXES[0]}"


def are_current() -> bool:
    """Whether compiled modules are there and fit."""
    try:
        with open(os.path.join(FOLDER, STAMP)) as file:
            return file.read() == stamp()
    except FileNotFoundError:
        return False


class CompiledFinder:
    """Part of `sys.meta_path`. It decides when the first of the modules is imported."""

    def __init__(self) -> None:
        self._is_used: bool | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in MODULES and name != LIBRARY:
            return None
        if self._is_used is None:
            self._is_used = are_used()
        if not self._is_used:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, os.path.join(FOLDER, file_of(name)))


def are_used() -> bool:
    """Whether this process imports compiled modules; raises if it should and cannot."""
    asked = os.environ.get(SWITCH, "")
    if asked not in ("", "0", "1"):
        raise ImportError(f"{SWITCH} must be 0, 1 or empty, not {asked!r}")
    if asked == "0":
        return False
    if not are_current():
        if asked:
            raise ImportError(f"{SWITCH} is 1, but there are no compiled modules that fit {_HERE}")
        return False
    return True
