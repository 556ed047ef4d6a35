"""Tells systemd how far we are, by one datagram each; without systemd, nobody is told.

See sd_notify(3): the socket's address is in NOTIFY_SOCKET, and each message is a few lines of NAME=value.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

log = logging.getLogger("topics")


class Notifier:
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
