"""A run says what machine it is on, and of an interpreter no more than is known."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from benchmarks import session
from benchmarks.session import compiler_flags, machine


def of_a_build(monkeypatch: pytest.MonkeyPatch, arguments: str | None, program: Path) -> str:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: arguments if name == "CONFIG_ARGS" else "")
    monkeypatch.setattr(session, "_interpreter_file", lambda: program)
    return machine().python


@pytest.mark.parametrize(("flag", "word"), [("-fprofile-use", "with"), ("-fwrapv", "without")])
def test_what_the_compiler_noted_tells_of_profile_guidance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str, word: str
) -> None:
    source, program, stripped = (tmp_path / name for name in ("main.c", "program", "stripped"))
    source.write_text("int main(void) { return 0; }\n")
    quiet = "-Wno-missing-profile"
    subprocess.run(["gcc", "-g", "-O2", flag, quiet, source, "-o", program], check=True)
    subprocess.run(["gcc", "-s", "-O2", flag, quiet, source, "-o", stripped], check=True)
    assert f" ({word} profile guidance; " in of_a_build(monkeypatch, "'--enable-shared'", program)
    assert compiler_flags(stripped) == b""
    assert " (profile guidance: not known; " in of_a_build(monkeypatch, "'--enable-shared'", stripped)


@pytest.mark.parametrize("arguments", ["", None])
def test_without_a_word_on_its_build_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str | None
) -> None:
    (tmp_path / "program").write_bytes(b"")
    assert " (profile guidance: not known; " in of_a_build(monkeypatch, arguments, tmp_path / "program")


def test_what_configure_was_asked_for_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = "'--enable-optimizations' '--with-lto'"
    assert " (with profile guidance; " in of_a_build(monkeypatch, asked, tmp_path / "none")


def test_the_interpreter_is_looked_for_where_it_is() -> None:
    assert b"_PyEval_EvalFrameDefault" in session._interpreter_file().read_bytes()
