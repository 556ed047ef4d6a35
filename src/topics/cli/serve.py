"""`topics serve`: the server, configured by TOPICS_* variables; a few flags mirror them."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from topics.log.replay import RecoveryFailed
from topics.storage.fileheader import ForeignFile
from topics.storage.filesystem import LockHeld
from topics.values.errors import ConfigError
from topics.values.settings import Settings

# Options that stand for a variable of the same meaning; the flag wins.
_MIRRORED = {"host": "TOPICS_HOST", "port": "TOPICS_PORT", "data_dir": "TOPICS_DATA_DIR"}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("serve", help="run the server", description=__doc__)
    parser.add_argument("--host", help="address to listen on (TOPICS_HOST)")
    parser.add_argument("--port", help="port, 0 lets the system choose (TOPICS_PORT)")
    parser.add_argument("--data-dir", help="where everything is kept (TOPICS_DATA_DIR)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    environment = dict(os.environ)
    for option, variable in _MIRRORED.items():
        value = getattr(arguments, option)
        if value is not None:
            environment[variable] = value
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _serve(Settings.from_environment(environment))
    except (ConfigError, ForeignFile, LockHeld, RecoveryFailed, OSError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return 2


def _serve(settings: Settings) -> int:
    import uvloop

    from topics.cli.allocator import keep_freed_memory
    from topics.http.app import Application

    async def serve() -> None:
        await Application(settings).run()

    keep_freed_memory()
    # Threads that seal and sync ask for the interpreter many times per file; at the default of 5 ms each they
    # would fall behind a busy loop, and what they have not sealed stays in memory.
    sys.setswitchinterval(0.0005)
    uvloop.run(serve())
    return 0
