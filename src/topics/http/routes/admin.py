"""For operators: purges, and holding files still for a backup. Both concern all topics at once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from topics.flow.upkeep import Upkeep
from topics.http.door.keys import ADMIN
from topics.http.routes.fields import decode
from topics.http.routes.service import Service, answer
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.keep.holds import Backups, Hold
from topics.keep.purge import Purge, Purges
from topics.values.errors import ApiError


class PurgeBody(msgspec.Struct, gc=False):
    topics: list[str] | None = None


_purge = msgspec.json.Decoder(PurgeBody)


class AdminRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self.purges: Purges
        self.backups: Backups

    def start(self, upkeep: Upkeep) -> None:
        """Recovery is over."""
        self.purges = Purges(self._engine, upkeep)
        self.backups = Backups(self._engine, upkeep)

    def routes(self) -> list[Route]:
        purge, hold = "/v0/admin/purge", "/v0/admin/backup"
        common: dict[str, Any] = {"scopes": ADMIN, "all_names": True}
        return [
            Route(method="POST", template=purge, handler=self.start_purge, body=Body.OPTIONAL, **common),
            Route(method="GET", template=purge + "/:purge", handler=self.show_purge, **common),
            Route(method="POST", template=hold, handler=self.hold, **common),
            Route(method="POST", template=hold + "/:hold/renew", handler=self.renew, **common),
            Route(method="DELETE", template=hold + "/:hold", handler=self.release, **common),
        ]

    # --- purge ------------------------------------------------------------------------------------------

    def start_purge(self, exchange: Exchange) -> None:
        body = decode(_purge, exchange.body or b"{}")
        for name in body.topics or ():
            self._engine.require(name)
        answer(exchange, shown(self.purges.start(body.topics)), 202)

    def show_purge(self, exchange: Exchange) -> None:
        purge = self.purges.find(exchange.name)
        if purge is None:
            raise ApiError("not_found", "no such purge; those of earlier runs of the server are forgotten")
        answer(exchange, shown(purge))

    # --- backup -----------------------------------------------------------------------------------------

    async def hold(self, exchange: Exchange) -> None:
        hold = await self.backups.take()
        body = {
            **_lease(hold),
            "now": hold.now_ms,
            "data_dir": hold.data_dir,
            "topics": hold.topics,
            "position": hold.position,
            "snapshots": [{"number": number, "path": path} for number, path in hold.snapshots.items()],
            "segments": [{"number": number, "path": path} for number, path in hold.segments.items()],
            "journal": [asdict(piece) for piece in hold.journal],
        }
        answer(exchange, body)

    def renew(self, exchange: Exchange) -> None:
        hold = self.backups.renew(exchange.name)
        if hold is None:
            raise ApiError("not_found", "no such hold; its lease may have run out")
        answer(exchange, _lease(hold))

    def release(self, exchange: Exchange) -> None:
        answer(exchange, {"hold": exchange.name, "released": self.backups.release(exchange.name)})


def shown(purge: Purge) -> dict[str, Any]:
    fields = asdict(purge)
    return {"purge": fields.pop("id"), **fields}


def _lease(hold: Hold) -> dict[str, Any]:
    return {"hold": hold.id, "expires_ms": hold.expires_ms}
