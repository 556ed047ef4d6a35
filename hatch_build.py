"""Build hook of hatchling: compiles the native codec and modules of the server if there is a C compiler.

A wheel with compiled files is for this Python on this platform, and its name says so. Without a compiler, or
without the headers of Python, the wheel is pure and runs anywhere. TOPICS_BUILD_NATIVE=0 always makes a pure
wheel, as for a package index; TOPICS_BUILD_NATIVE=1 fails if anything cannot be compiled. An editable install
gets the codec where `scripts/build_native.py` puts it, and no compiled modules: they would not follow changes
of their sources.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "TOPICS_BUILD_NATIVE"


def _script(name: str) -> Any:
    path = Path(__file__).parent / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    _folder: "tempfile.TemporaryDirectory[str] | None" = None

    def dependencies(self) -> list[str]:
        return [] if os.environ.get(SWITCH) == "0" else ["mypy[mypyc]>=2.4"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        codec = _script("build_native")
        if version == "editable":
            codec.build(codec.SRC / codec.PACKAGE)
            return
        asked = os.environ.get(SWITCH, "")
        if asked not in ("", "0", "1"):
            raise ValueError(f"{SWITCH} must be 0, 1 or empty, not {asked!r}")
        if asked == "0":
            return
        # Not next to the sources: the file there belongs to the interpreter of an editable install.
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        made, said = codec.build(folder)
        if made is not None and not codec.loads(made):
            made, said = None, "the compiled module cannot be loaded by this Python"
        if made is None:
            self._folder.cleanup()
            if asked == "1":
                raise RuntimeError(f"{SWITCH}=1, but the native codec cannot be compiled: {said}")
            return
        # Without the tag of this interpreter, the file name would say that any interpreter can use it.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(made)] = f"{codec.PACKAGE}/{made.name}"
        modules = _script("compile_modules")
        compiled = folder / "_compiled"
        problem = modules.build(compiled)
        if not problem:
            build_data["force_include"][str(compiled)] = "topics/_compiled"
        elif asked == "1":
            self._folder.cleanup()
            raise RuntimeError(f"{SWITCH}=1, but modules cannot be compiled: {problem}")
        else:
            print(modules.said(problem), file=sys.stderr)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
