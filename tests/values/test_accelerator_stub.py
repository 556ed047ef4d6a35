"""The declarations of the accelerator are those of what is compiled."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.accelerated import WAYS
from topics.values import accelerator

STUB = Path(accelerator.__file__).with_name("_accelerator.pyi")


def declared(body: list[ast.stmt]) -> set[str]:
    names = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    return names | {ast.unparse(one.target) for one in body if isinstance(one, ast.AnnAssign)}


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_what_is_declared_is_what_there_is() -> None:
    native: ModuleType | None = WAYS.get("accelerated")
    if native is None:
        pytest.skip("there is no accelerator")
    stub = ast.parse(STUB.read_text())
    assert declared(stub.body) == public(dir(native))
    for kind in stub.body:
        if isinstance(kind, ast.ClassDef):
            assert public([*declared(kind.body)]) == public(dir(getattr(native, kind.name)))
