"""What hatch_build.py tells hatchling: whether a wheel has the compiled codec, and for which Python."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts import build_native

ROOT = Path(__file__).parents[2]
INTERFACE = "hatchling.builders.hooks.plugin.interface"
SWITCH = "TOPICS_BUILD_NATIVE"
PURE: dict[str, Any] = {"pure_python": True, "infer_tag": False, "force_include": {}}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As hatchling would call it. It need not be here: pip gets it when it builds."""
    interface = ModuleType(INTERFACE)
    interface.BuildHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, INTERFACE, interface)
    monkeypatch.delenv(SWITCH, raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CustomBuildHook()


def asked(hook: Any) -> dict[str, Any]:
    """The build data of a wheel, once the hook has been asked."""
    data = PURE | {"force_include": {}}
    hook.initialize("standard", data)
    return data


def compiler_that(folder: Path, does: str) -> str:
    command = folder / "cc"
    command.write_text(f"#!/bin/sh\n{does}\n")
    command.chmod(0o755)
    return str(command)


def test_with_a_compiler_but_without_mypyc_the_wheel_has_the_codec_alone(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not build_native.compiler() or not build_native.headers():
        pytest.skip("there is no C compiler, or there are no headers of Python")
    (tmp_path / "mypyc.py").write_text("raise ImportError('there is no mypyc')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    data = asked(hook)
    included = data.pop("force_include")
    # Hatchling then writes the tag of this interpreter, and no other takes the wheel.
    assert data == {"pure_python": False, "infer_tag": True}
    assert list(included.values()) == [f"{build_native.PACKAGE}/{build_native.FILE_NAME}"]
    assert all(build_native.loads(Path(made)) for made in included)
    (said,) = capfd.readouterr().err.splitlines()
    assert said.endswith("their sources are used: ImportError: there is no mypyc")
    hook.finalize("standard", data, "the wheel")
    assert not any(Path(made).exists() for made in included)
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(RuntimeError, match="there is no mypyc"):
        asked(hook)


def test_mypyc_is_asked_for_unless_the_wheel_is_pure(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.partition("[")[0] for each in hook.dependencies()] == ["mypy"]
    monkeypatch.setenv(SWITCH, "0")
    assert hook.dependencies() == []


def test_without_a_compiler_it_is_pure(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert asked(hook) == PURE


@pytest.mark.parametrize(
    "does",
    [
        "echo 'Python.h: No such file or directory' >&2; exit 1",
        'while [ "$1" != -o ]; do shift; done; echo > "$2"',
    ],
    ids=["has no headers", "is for another machine"],
)
def test_with_a_compiler_that_makes_nothing_for_this_python_it_is_pure_unless_demanded(
    hook: Any, does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler_that(tmp_path, does))
    assert asked(hook) == PURE
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(RuntimeError, match=r"Python.h: No such file|cannot be loaded by this Python"):
        asked(hook)


def test_a_pure_one_can_be_asked_for(hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler_that(tmp_path, f"touch {tmp_path}/called; exit 1"))
    monkeypatch.setenv(SWITCH, "0")
    assert asked(hook) == PURE
    assert not (tmp_path / "called").exists()
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(ValueError, match="must be 0, 1 or empty, not 'off'"):
        asked(hook)
