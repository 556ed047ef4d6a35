"""What hatchling asks before it builds: the accelerator is compiled where there is a compiler.

A wheel that has it is for this Python on this platform, and says so in its name; without a compiler, or
without Python's headers, it is pure, and runs anywhere. With TOPICS_BUILD_ACCELERATOR=0 it is always pure, as
for a package index, and with TOPICS_BUILD_ACCELERATOR=1 there is none rather than a pure one. An editable
install has it beside the sources, as `scripts/accelerate.py` puts it there.
"""

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "TOPICS_BUILD_ACCELERATOR"


def _accelerate() -> Any:
    spec = importlib.util.spec_from_file_location(
        "accelerate", Path(__file__).parent / "scripts" / "accelerate.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    _folder: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        accelerate = _accelerate()
        if version == "editable":
            accelerate.build(accelerate.FOLDER)
            return
        asked = os.environ.get(SWITCH, "")
        if asked not in ("", "0", "1"):
            raise ValueError(f"{SWITCH} is 0, 1 or nothing, not {asked!r}")
        if asked == "0":
            return
        # Not beside the sources: what is there belongs to the interpreter of an editable install.
        self._folder = tempfile.TemporaryDirectory()
        made, said = accelerate.build(Path(self._folder.name))
        if made is not None and not accelerate.loads(made):
            made, said = None, "what was compiled cannot be loaded by this Python"
        if made is None:
            self._folder.cleanup()
            if asked == "1":
                raise RuntimeError(f"{SWITCH}=1, but the accelerator cannot be compiled: {said}")
            return
        # Without the tag of this interpreter, the name would say that any may have it.
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][str(made)] = f"topics/values/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
