"""`topics serve`: the server, configured by TOPICS_* variables; a few flags mirror them."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from topics.cli.logs import set_up_logging
from topics.cli.notify import Notifier
from topics.cli.work import answering
from topics.values.settings import Settings

# Options that stand for a variable of the same meaning; the flag wins.
_MIRRORED = {"host": "TOPICS_HOST", "port": "TOPICS_PORT", "data_dir": "TOPICS_DATA_DIR"}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("serve", help="run the server", description=__doc__)
    add_mirrored(parser)
    parser.set_defaults(run=run)


def add_mirrored(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (TOPICS_HOST)")
    parser.add_argument("--port", help="port, 0 lets the system choose (TOPICS_PORT)")
    parser.add_argument("--data-dir", help="where everything is kept (TOPICS_DATA_DIR)")


def mirrored(arguments: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with what the flags say instead."""
    given = {variable: getattr(arguments, option) for option, variable in _MIRRORED.items()}
    return {**environment, **{variable: value for variable, value in given.items() if value is not None}}


def run(arguments: argparse.Namespace) -> int:
    settings = Settings.from_environment(mirrored(arguments, os.environ))
    set_up_logging(settings)
    if settings.log_format == "json":
        # Whoever reads the log as JSON reads why there is no server as well.
        return answering(lambda: _serve(settings), logging.getLogger("topics").error)
    return answering(lambda: _serve(settings))


def _serve(settings: Settings) -> int:
    import uvloop

    from topics.cli.allocator import keep_freed_memory
    from topics.http.app import Application
    from topics.http.door.connection_limit import raise_descriptor_limit

    async def serve() -> None:
        app = Application(settings)
        notifier = Notifier(os.environ)
        app.on_ready.append(notifier.ready)
        app.server.on_shutdown.insert(0, notifier.stopping)
        await app.run()

    keep_freed_memory()
    raise_descriptor_limit()
    # Threads that seal and sync ask for the interpreter many times per file; at the default of 5 ms each they
    # would fall behind a busy loop, and what they have not sealed stays in memory. The loop asks for it back
    # as often, and somebody waits for an answer meanwhile.
    sys.setswitchinterval(0.0001)
    uvloop.run(serve())
    return 0
