"""`GET /v0/openapi.json`: what this server can be asked, for machines.

The document is a file, `openapi.json` in this package's parent; tests hold it against the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import topics
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Route

DOCUMENT = Path(__file__).parent.parent / "openapi.json"


class OpenApi:
    """The document is read when it is first asked for, so that starting does not pay for it."""

    def __init__(self, *, key_needed: bool) -> None:
        """`key_needed`: probes, and this document, need a key."""
        self._key_needed = key_needed
        self._document = b""

    def routes(self) -> list[Route]:
        """Open like the probes: it holds nothing that the source code does not."""
        return [
            Route(
                method="GET",
                template="/v0/openapi.json",
                handler=self.show,
                public=not self._key_needed,
                always_open=True,
            )
        ]

    def show(self, exchange: Exchange) -> None:
        if not self._document:
            self._document = msgspec.json.encode(self._read())
        exchange.reply(self._document)

    def _read(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.json.decode(DOCUMENT.read_bytes())
        document["info"]["version"] = topics.__version__
        if self._key_needed:
            for operations in document["paths"].values():
                for operation in operations.values():
                    _need_a_key(operation)
        return document


def _need_a_key(operation: dict[str, Any]) -> None:
    if not operation["security"]:
        operation["security"] = [{"bearer": []}]
        operation["responses"]["401"] = {"$ref": "#/components/responses/unauthorized"}
