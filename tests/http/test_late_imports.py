"""What nobody has asked for yet is not imported."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from topics.http.routes.service import load


def test_a_server_that_nobody_asks_for_bulk_data_never_imports_pyarrow() -> None:
    check = "import sys, topics.cli.serve, topics.http.app; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# What a server is made of besides Python and itself, with what these import. Every further one costs time.
NEEDED = {
    "_cython",
    "cython_runtime",
    "httptools",
    "msgspec",
    "mypy_extensions",
    "numpy",
    "typing_extensions",
}
NEEDED |= {"uvloop", "xxhash"}


def test_a_start_imports_what_it_needs_and_no_more() -> None:
    """Not by the clock: what is imported, and when, decides how long a start takes."""
    check = """
import sys
before = set(sys.modules)
import topics.cli.serve, topics.http.app, uvloop
mine = {name.split(".")[0].split("_cython")[0] or "_cython" for name in set(sys.modules) - before}
print(*sorted(name for name in mine if name not in sys.stdlib_module_names))
"""
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) - {"topics"} <= NEEDED


def test_what_a_start_can_do_without_is_imported_when_the_server_is_up(tmp_path: Path) -> None:
    check = f"""
import asyncio, sys
from topics.http import app
from topics.core import Settings

async def main():
    served = app.Application(Settings(data_dir={str(tmp_path / "data")!r}, port=0))
    loop = asyncio.get_running_loop()
    app.REST_S = 0.0

    def ready():
        assert "wsproto" not in sys.modules
        loop.call_soon(look)

    def look():
        if "topics.http.websocket" in sys.modules:
            served.server.request_stop()
        else:
            loop.call_later(0.01, look)

    served.on_ready.append(ready)
    await served.run()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", ["put_part", "commit", "drop"])
def test_stages_import_what_they_need_on_a_thread(verb: str) -> None:
    """Whatever is imported in the handler itself is imported while everybody waits."""
    check = f"""
import asyncio, sys, threading
from types import SimpleNamespace
import msgspec
from topics.http.routes import stages
from topics.http.routes.stages import CommitBody
from topics.core import ApiError

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow":
            assert threading.current_thread() is not threading.main_thread()

class Stages:
    def __getattr__(self, name):
        assert "pyarrow" in sys.modules
        sys.exit(0)

sys.meta_path.insert(0, Finder())
body = b'{{"identity": {{"id": "i", "batch": 0}}, "parts": []}}'
exchange = SimpleNamespace(
    name="s", params=("p",), key=None, body=body, query=lambda name: None,
    headers={{b"content-type": b"application/vnd.apache.arrow.stream"}}, note=lambda fields: None,
    refuse_unknown_fields=lambda: None,
)
try:
    decoded = (msgspec.json.decode(body, type=CommitBody),) if "{verb}" == "commit" else ()
    service = SimpleNamespace(node=SimpleNamespace(stages=Stages()))
    asyncio.run(stages.{verb}(service, exchange, *decoded))
except ApiError:
    # What the part is made of was looked at: it is no Arrow stream.
    assert "{verb}" == "put_part" and "pyarrow" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_module_that_another_thread_is_importing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on the loop, which goes on meanwhile."""
    (tmp_path / "slow_to_import.py").write_text(
        "import threading\nmay_end = threading.Event()\nassert may_end.wait(30)\nVALUE = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def both() -> None:
        first = asyncio.create_task(load("slow_to_import"))
        while not hasattr(sys.modules.get("slow_to_import"), "may_end"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second = asyncio.create_task(load("slow_to_import"))
        await asyncio.sleep(0.01)
        assert not second.done()
        sys.modules["slow_to_import"].may_end.set()
        await asyncio.gather(first, second)

    try:
        asyncio.run(both())
    finally:
        sys.modules.pop("slow_to_import", None)
