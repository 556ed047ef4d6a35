"""`sanitised_server.py MODULE serve`: a server by processor time, with this compiled codec. A program."""

import importlib.util
import sys
import time

_NAME = "topics.codec._native"

spec = importlib.util.spec_from_file_location(_NAME, sys.argv.pop(1))
assert spec is not None
assert spec.loader is not None
# A module that is loaded already is not searched for in the package.
sys.modules[_NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[_NAME])

# Replaced before modules of the server import it.
time.perf_counter = time.thread_time

from topics import codec  # noqa: E402

if codec.decode is not sys.modules[_NAME].decode:
    sys.exit(f"the server uses another codec: {codec.NAME}")

from topics.cli.main import main  # noqa: E402

sys.exit(main())
