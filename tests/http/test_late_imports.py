"""What nobody has asked for yet is not imported."""

import asyncio
import subprocess
import sys

from topics.http.late_imports import load


def test_a_server_that_nobody_asks_for_bulk_data_never_imports_pyarrow() -> None:
    check = "import sys, topics.cli.serve, topics.http.app; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_modules_are_there_after_loading() -> None:
    asyncio.run(load("json", "wave"))
    assert "wave" in sys.modules
