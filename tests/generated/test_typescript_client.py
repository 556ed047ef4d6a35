"""With types that openapi-typescript makes of the OpenAPI document a client works, and a wrong one fails."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ServerProcess
from tests.support.npm import node_modules

SOURCES = Path(__file__).parent / "typescript"
# Compiling takes seconds; on a busy machine, many of them.
PATIENCE_S = 300


@pytest.fixture(scope="module")
def tools() -> Path:
    """What is needed from npm, installed if it is not there yet."""
    return node_modules(SOURCES)


def run(directory: Path, *command: str) -> str:
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run([node, *command], cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_client_that_was_made_appends_reads_and_gets_a_typed_404(
    tools: Path, server: ServerProcess, tmp_path: Path
) -> None:
    for name in ("client.ts", "package.json", "tsconfig.json"):
        shutil.copy(SOURCES / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(tools)
    (tmp_path / "openapi.json").write_bytes(server.request("GET", "/v0/openapi.json").body)
    run(tmp_path, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "schema.d.ts")
    # Strictly, and each error that the client expects has to be one.
    run(tmp_path, "node_modules/typescript/bin/tsc", "-p", "tsconfig.json")
    told = json.loads(run(tmp_path, "client.js", f"http://{server.address}"))
    assert told == {"last": 2, "trace": "abc", "listed": 1, "missing": "none", "status": 404}
