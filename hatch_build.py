"""Build hook of hatchling: compiles the native codec if there is a compiler.

A wheel with the compiled module is for this Python on this platform, and its name says so. Without a
compiler, or without the headers of Python, the wheel is pure and runs anywhere. TOPICS_BUILD_NATIVE=0 always
makes a pure wheel, as for a package index; TOPICS_BUILD_NATIVE=1 fails rather than make one. An editable
install gets the module where `scripts/build_native.py` puts it.
"""

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "TOPICS_BUILD_NATIVE"


def _script() -> Any:
    path = Path(__file__).parent / "scripts" / "build_native.py"
    spec = importlib.util.spec_from_file_location("build_native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    _folder: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = _script()
        if version == "editable":
            script.build(script.SRC / script.PACKAGE)
            return
        asked = os.environ.get(SWITCH, "")
        if asked not in ("", "0", "1"):
            raise ValueError(f"{SWITCH} must be 0, 1 or empty, not {asked!r}")
        if asked == "0":
            return
        # Not next to the sources: the file there belongs to the interpreter of an editable install.
        self._folder = tempfile.TemporaryDirectory()
        made, said = script.build(Path(self._folder.name))
        if made is not None and not script.loads(made):
            made, said = None, "the compiled module cannot be loaded by this Python"
        if made is None:
            self._folder.cleanup()
            if asked == "1":
                raise RuntimeError(f"{SWITCH}=1, but the native codec cannot be compiled: {said}")
            return
        # Without the tag of this interpreter, the file name would say that any interpreter can use it.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(made)] = f"{script.PACKAGE}/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
