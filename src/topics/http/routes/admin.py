"""For operators: purges, and holding files still for a backup. Both concern all topics at once."""

from typing import Any

import msgspec

from topics.core import ApiError
from topics.http.admission.auth import ADMIN
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Body
from topics.ops.backup_holds import BackupHold


class PurgeBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    topics: list[str] | None = None


_ALL: dict[str, Any] = {"scopes": ADMIN, "all_names": True}


@routes.add("POST", "/v0/admin/purge", body=Body.OPTIONAL, accepts=PurgeBody, **_ALL)
def start_purge(service: Service, exchange: Exchange, body: PurgeBody) -> None:
    for name in body.topics or ():
        service.engine.require(name)
    exchange.refuse_unknown_fields()
    answer(exchange, service.node.purges.start(body.topics).shown(), 202)


@routes.add("GET", "/v0/admin/purge/:purge", **_ALL)
def show_purge(service: Service, exchange: Exchange) -> None:
    purge = service.node.purges.find(exchange.name)
    if purge is None:
        raise ApiError("not_found", "no such purge; those of earlier runs of the server are forgotten")
    answer(exchange, purge.shown())


@routes.add("POST", "/v0/admin/backup", **_ALL)
async def hold_files(service: Service, exchange: Exchange) -> None:
    exchange.refuse_unknown_fields()
    hold = await service.node.holds.take()
    identity = service.node.home.identity
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


@routes.add("POST", "/v0/admin/backup/:hold/renew", **_ALL)
def renew(service: Service, exchange: Exchange) -> None:
    hold = service.node.holds.find(exchange.name)
    if hold is None:
        raise ApiError("not_found", "no such hold; its lease may have run out")
    exchange.refuse_unknown_fields()
    service.node.holds.renew(exchange.name)
    answer(exchange, _lease(hold))


@routes.add("DELETE", "/v0/admin/backup/:hold", **_ALL)
def release(service: Service, exchange: Exchange) -> None:
    exchange.refuse_unknown_fields()
    answer(exchange, {"hold": exchange.name, "released": service.node.holds.release(exchange.name)})


def _lease(hold: BackupHold) -> dict[str, Any]:
    return {"hold": hold.id, "expires_ms": hold.expires_ms}
