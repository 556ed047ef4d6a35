"""What hatchling asks before it builds: the accelerator is compiled where that is possible, or asked for.

An editable install, as in a clone, gets it if there is a compiler. A wheel is pure, and runs anywhere, unless
TOPICS_BUILD_ACCELERATOR=1 asks for one of this platform; then a compiler is needed.
"""

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        accelerate = _accelerate()
        if version == "editable":
            accelerate.build(accelerate.FOLDER)
        elif os.environ.get("TOPICS_BUILD_ACCELERATOR") == "1":
            made, said = accelerate.build(Path(tempfile.mkdtemp()))
            if made is None:
                raise RuntimeError(f"the accelerator was asked for and cannot be compiled: {said}")
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(made)] = f"topics/values/{made.name}"
