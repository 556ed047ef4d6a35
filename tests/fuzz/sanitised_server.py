"""`sanitised_server.py MODULE serve`: a server by processor time, with this accelerator. A program."""

import importlib.util
import sys
import time

_NAME = "topics.values._accelerator"

spec = importlib.util.spec_from_file_location(_NAME, sys.argv.pop(1))
assert spec is not None
assert spec.loader is not None
# Found here, the one beside the sources is not looked for.
sys.modules[_NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[_NAME])

# Before anything of the server takes it from there.
time.perf_counter = time.thread_time

from topics.values import accelerator  # noqa: E402

if accelerator.native is not sys.modules[_NAME]:
    sys.exit(f"another accelerator: {accelerator.described()}")

from topics.cli.main import main  # noqa: E402

sys.exit(main())
