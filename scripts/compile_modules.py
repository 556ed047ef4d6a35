"""Compile the modules that `topics.compiled` lists, if they have changed since they were compiled.

They are optional. Without mypy or a C compiler, the script says so, and their sources are used. `--required`
makes that an error and prints all messages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
sys.path.insert(0, str(SRC))

from topics import compiled  # noqa: E402

# `make typecheck` checks types. Here mypy reads nothing that only some machines have installed, so that all
# machines compile the same.
_MYPY = (
    "--config-file=",
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--explicit-package-bases",
)


def build(folder: Path) -> str:
    """Replace this folder by one with all modules. Return the messages of the compilers if that fails."""
    stamp = compiled.stamp()
    with tempfile.TemporaryDirectory() as temporary:
        # From `src`, as tracebacks name the files by paths that are relative to it.
        command = [sys.executable, __file__, "--into", temporary]
        done = subprocess.run(command, cwd=SRC, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{done.stdout}{done.stderr}".strip() or f"exit code {done.returncode}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(temporary, "lib"), folder)
    # Without its stamp, a folder that is not complete is not used.
    (folder / compiled.STAMP).write_text(stamp)
    return ""


def said(problem: str) -> str:
    """One line for a build that goes on."""
    return f"modules of the server are not compiled, so their sources are used: {problem.splitlines()[-1]}"


def _compile(temporary: str) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    modules = mypycify(
        [*_MYPY, *map(compiled.source_of, compiled.MODULES)],
        debug_level="0",
        target_dir=temporary,
        group_name=compiled.LIBRARY.removesuffix("__mypyc"),
    )
    options = ["--quiet", "build_ext", "--build-temp", temporary, "--build-lib", f"{temporary}/lib"]
    setup(name="topics", packages=[], ext_modules=modules, script_args=options)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--into"]:
        _compile(arguments[1])
        return 0
    if compiled.are_current():
        return 0
    is_required = arguments == ["--required"]
    print("compiling modules of the server: about a minute", flush=True)
    problem = build(Path(compiled.FOLDER))
    if problem:
        print(problem if is_required else said(problem))
    return 1 if problem and is_required else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
