"""For operators: purges, and holding files still for a backup. Both concern all topics at once."""

from typing import Any

import msgspec

from topics.core import ApiError
from topics.engine.node import Node
from topics.http.admission.auth import ADMIN
from topics.http.exchange import Exchange
from topics.http.routes.service import answer
from topics.http.routing import Body, Route
from topics.ops.backup_holds import BackupHold


class PurgeBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    topics: list[str] | None = None


class AdminRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        purge, hold = "/v0/admin/purge", "/v0/admin/backup"
        common: dict[str, Any] = {"scopes": ADMIN, "all_names": True}
        return [
            Route("POST", purge, self.start_purge, body=Body.OPTIONAL, accepts=PurgeBody, **common),
            Route("GET", purge + "/:purge", self.show_purge, **common),
            Route("POST", hold, self.hold, **common),
            Route("POST", hold + "/:hold/renew", self.renew, **common),
            Route("DELETE", hold + "/:hold", self.release, **common),
        ]

    # --- purge ------------------------------------------------------------------------------------------

    def start_purge(self, exchange: Exchange, body: PurgeBody) -> None:
        for name in body.topics or ():
            self._node.engine.require(name)
        exchange.refuse_unknown_fields()
        answer(exchange, self._node.purges.start(body.topics).shown(), 202)

    def show_purge(self, exchange: Exchange) -> None:
        purge = self._node.purges.find(exchange.name)
        if purge is None:
            raise ApiError("not_found", "no such purge; those of earlier runs of the server are forgotten")
        answer(exchange, purge.shown())

    # --- backup -----------------------------------------------------------------------------------------

    async def hold(self, exchange: Exchange) -> None:
        exchange.refuse_unknown_fields()
        hold = await self._node.holds.take()
        identity = self._node.home.identity
        body = {
            **_lease(hold),
            "now": hold.now_ms,
            "data_dir": hold.data_dir,
            "identity": identity.identity,
            "restored_from": identity.restored_from or None,
            "topics": hold.topics,
            "position": hold.position,
            "snapshots": [{"number": number, "path": path} for number, path in hold.snapshots.items()],
            "segments": [{"number": number, "path": path} for number, path in hold.segments.items()],
            "journal": hold.journal,
        }
        answer(exchange, body)

    def renew(self, exchange: Exchange) -> None:
        hold = self._node.holds.find(exchange.name)
        if hold is None:
            raise ApiError("not_found", "no such hold; its lease may have run out")
        exchange.refuse_unknown_fields()
        self._node.holds.renew(exchange.name)
        answer(exchange, _lease(hold))

    def release(self, exchange: Exchange) -> None:
        exchange.refuse_unknown_fields()
        answer(exchange, {"hold": exchange.name, "released": self._node.holds.release(exchange.name)})


def _lease(hold: BackupHold) -> dict[str, Any]:
    return {"hold": hold.id, "expires_ms": hold.expires_ms}
