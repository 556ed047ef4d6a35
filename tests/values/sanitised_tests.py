"""`sanitised_tests.py MODULE TESTS…`: these tests, with this accelerator. A program."""

from __future__ import annotations

import importlib.util
import sys

import pytest

_NAME = "topics.values._accelerator"

spec = importlib.util.spec_from_file_location(_NAME, sys.argv[1])
assert spec is not None
assert spec.loader is not None
# Found here, the one beside the sources is not looked for.
sys.modules[_NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[_NAME])

from topics.values import accelerator  # noqa: E402

if accelerator.native is not sys.modules[_NAME]:
    sys.exit(f"another accelerator: {accelerator.described()}")

# What is imported already cannot be rewritten for its assertions.
sys.exit(pytest.main(["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", *sys.argv[2:]]))
