"""Which codec is used, and the compiled module as such."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from scripts import build_native

from tests.support import sanitised
from tests.support.codecs import NATIVE
from topics.codec import native as native_module
from topics.codec import python

STUB = Path(python.__file__).with_name("_native.pyi")
can_compile = pytest.mark.skipif(
    not build_native.compiler() or not build_native.headers(), reason="there is no C compiler, or no headers"
)
needs_native = pytest.mark.skipif(NATIVE is None, reason="there is no compiled codec")


def chosen(asked: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\nfrom topics import codec; print(codec.NAME, codec.decode.__module__)"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TOPICS_TEST_CODEC": asked},
        capture_output=True,
        text=True,
        check=False,
    )


# As if the compiled module were missing, or compiled from another source.
MISSING = "import sys; sys.modules['topics.codec._native'] = None"
STALE = "import zlib; real = zlib.crc32; zlib.crc32 = lambda data: real(data) ^ 1"


def test_python_can_be_asked_for() -> None:
    assert chosen("python").stdout == "python topics.codec.python\n"


@needs_native
def test_the_compiled_codec_is_used_if_it_is_there() -> None:
    assert chosen("").stdout.startswith("native ")
    assert chosen("native").stdout.startswith("native ")


@pytest.mark.parametrize("before", [MISSING, STALE], ids=["missing", "stale"])
def test_a_codec_that_cannot_be_used_is_replaced_unless_it_is_asked_for(before: str) -> None:
    assert chosen("", before).stdout == "python topics.codec.python\n"
    refused = chosen("native", before)
    assert refused.returncode != 0
    assert "TOPICS_TEST_CODEC is native, but" in refused.stderr


def test_another_name_is_refused() -> None:
    assert "must be native or python, not 'off'" in chosen("off").stderr


@can_compile
def test_the_compiled_codec_is_there_in_ci() -> None:
    """Every make target compiles it."""
    if os.environ.get("CI") == "true":
        assert NATIVE is not None


@can_compile
def test_the_source_compiles_without_warnings(tmp_path: Path) -> None:
    made, said = build_native.build(tmp_path, ("-Werror", "-O0"))
    assert made is not None, said


@needs_native
def test_the_stub_declares_what_is_compiled() -> None:
    def declared(body: list[ast.stmt]) -> set[str]:
        names = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        return names | {ast.unparse(one.target) for one in body if isinstance(one, ast.AnnAssign)}

    def public(value: Any) -> set[str]:
        return {name for name in dir(value) if not name.startswith("_")}

    compiled = native_module._native
    stub = ast.parse(STUB.read_text())
    assert declared(stub.body) == public(compiled)
    for kind in stub.body:
        if isinstance(kind, ast.ClassDef):
            assert declared(kind.body) == public(getattr(compiled, kind.name))


@needs_native
def test_wrong_arguments_are_refused() -> None:
    """No caller passes them, and they must not crash the process either."""
    (write,) = NATIVE.decode([b'{"records":[{"data":1}]}'])
    ends = array("I", [1])
    for call in (
        lambda: NATIVE.decode(b"x"),
        lambda: NATIVE.decode([1]),
        lambda: NATIVE.decode(["x"]),
        lambda: NATIVE.decode([], []),
        lambda: NATIVE.decode([], other=True),
        lambda: NATIVE.decode(),
        lambda: NATIVE.encode([1], 1, 1),
        lambda: NATIVE.encode([None], 1, 1),
        lambda: NATIVE.encode((write,), 1, 1),
        lambda: NATIVE.encode([write], 1),
        lambda: NATIVE.encode([write], "1", 1),
        lambda: NATIVE.encode([write], 1, 1, "h"),
        lambda: NATIVE.encode([write], 1, 1, b"h", hops=b"h"),
        lambda: NATIVE.encode([write], 1, 1, other=b"h"),
        lambda: NATIVE.from_columns(b"1", array("i", [0, 1]), None, ([1],), checked=True),
        lambda: NATIVE.from_columns(b"1", array("i", [0, 1]), ["x"], (), checked=True),
        lambda: NATIVE.from_columns("1", array("i", [0, 1]), None, (), checked=True),
        lambda: NATIVE.page(b"", "rows", b""),
        lambda: NATIVE.alive(b"", ends, None, b"\0", 0),
        lambda: NATIVE.find_frames("window", 1, 1, 0),
        lambda: NATIVE.frame_parts(b"", 1),
        NATIVE.Write,
        NATIVE.Rows,
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(UnicodeEncodeError):
        NATIVE.from_columns(b"1", array("i", [0, 1]), None, (["\ud800"],), checked=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_access_leaves_its_memory(tmp_path: Path) -> None:
    """Random arguments for every function, under AddressSanitizer, in a process of its own."""
    made = sanitised.build(tmp_path)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fuzz.py")), str(made), "100000"],
        env={**os.environ, **sanitised.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
