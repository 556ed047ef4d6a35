"""`topics serve`: the server. `topics config` says which settings it would use."""

import argparse
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from topics.cli.errors import MISTAKE, print_error, report_errors
from topics.cli.logs import LogFile, set_up_logging
from topics.cli.output import Terminal
from topics.cli.parser import add_verb
from topics.cli.settings import add_flags, read_settings
from topics.core import ConfigError, Settings, variable

log = logging.getLogger("topics")


def add_parser(verbs: Any) -> None:
    add_flags(add_verb(verbs, "serve", run, __doc__))


def run(arguments: argparse.Namespace) -> int:
    try:
        configuration = read_settings(arguments)
    except ConfigError as mistakes:
        return _told(mistakes)
    settings = configuration.settings
    file = set_up_logging(settings)
    for warning in configuration.warnings:
        log.warning(warning)
    # Nothing is to be read again yet, and it must not end us.
    terminal = Terminal(closing_ends=signal.signal(signal.SIGHUP, signal.SIG_IGN) is not signal.SIG_IGN)
    if file is not None or settings.log_format == "json":
        # A log says in its own form why there is no server.
        return report_errors(
            lambda: _serve(settings, terminal, file), log.error if file is None else _told_twice
        )
    return _serve(settings, terminal, file)


def _told(mistakes: ConfigError) -> int:
    """How the log is to look may be the only setting that can be read."""
    form = os.environ.get(variable("log_format"), "").strip().lower()
    if form != "json":
        raise mistakes
    set_up_logging(Settings(log_format=form))
    for line in str(mistakes).splitlines():
        log.error(line)
    return MISTAKE


def _told_twice(line: str) -> None:
    """The person who has started it does not look into the log first."""
    log.error(line)
    print_error(line)


def _serve(settings: Settings, terminal: Terminal, log_file: LogFile | None) -> int:
    # What is imported stays, and looking through it for garbage again and again is a tenth of a start.
    gc.disable()
    import uvloop

    from topics.http.admission.limits import raise_descriptor_limit
    from topics.http.app import Application

    gc.freeze()
    gc.enable()

    async def serve() -> None:
        app = Application(settings)
        notifier = Notifier(os.environ)
        app.on_ready.append(notifier.ready)
        app.server.on_shutdown.insert(0, notifier.stopping)
        app.server.on_hangup = lambda: hang_up(app)
        if log_file is not None:
            app.on_reload.append(log_file.reopen)
        await app.run()

    def hang_up(app: Application) -> None:
        if terminal.is_gone():
            app.server.request_stop("SIGHUP, because its terminal was closed")
        else:
            app.reload()

    raise_descriptor_limit()
    # Threads that seal and sync ask for the interpreter many times per file; at the default of 5 ms each they
    # would fall behind a busy loop, and what they have not sealed stays in memory. The loop asks for it back
    # as often, and clients wait for answers meanwhile.
    sys.setswitchinterval(0.0001)
    uvloop.run(serve())
    return 0


class Notifier:
    """Tells systemd how far we are, by one datagram each, if systemd has started us.

    See sd_notify(3): the socket's address is in NOTIFY_SOCKET, and each message is a few lines of NAME=value.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" stands for the abstract namespace, whose names begin with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Recovery is over, data requests are answered."""
        self._send("READY=1\nSTATUS=serving")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=draining")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("could not notify systemd: %s", error)
