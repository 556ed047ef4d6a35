"""Answers about the server: health, readiness, version and room, and the OpenAPI document."""

from functools import partial
from typing import Any

import msgspec

import topics
from topics import codec
from topics.core import ApiError, invalid
from topics.http.admission.auth import ADMIN, READ
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Route


def probe_routes(service: Service) -> list[Route]:
    """Probes need a key only if the settings ask for one."""
    paths = (
        ("/v0/health", health, ()),
        ("/healthz", health, ()),
        ("/v0/ready", ready, ("for",)),
        ("/readyz", ready, ("for",)),
        # The document contains nothing that the source code does not.
        ("/v0/openapi.json", openapi, ()),
    )
    public = not service.settings.probe_auth
    return [
        Route("GET", path, partial(handler, service), public=public, always_open=True, query=query)
        for path, handler, query in paths
    ]


def health(service: Service, exchange: Exchange) -> None:
    answer = {"status": "ok", "version": topics.__version__, "uptime_ms": service.uptime_ms()}
    exchange.reply(msgspec.json.encode(answer))


def ready(service: Service, exchange: Exchange) -> None:
    """Report whether the server answers reads; with `for=writes`, whether it takes writes, too."""
    purpose = exchange.query("for")
    if purpose not in (None, "writes"):
        raise invalid("for must be writes")
    if not service.readiness.open:
        raise service.readiness.refusal()
    engine = service.engine
    answer: dict[str, Any] = {"status": "ready"}
    reason = engine.writes_off
    if reason is not None:
        if purpose == "writes":
            raise ApiError("not_ready", "the server takes no writes", {"reason": reason})
        answer = {"status": "degraded", "reason": reason}
    answer |= {"wal_replay_complete": True, "topics": len(engine.sorted_names), "codec": codec.NAME}
    # How far record times are ahead of the clock, or 0 if that is not worth reporting.
    ahead_ms = engine.clock_lead.told_ms()
    if ahead_ms:
        answer["clock_ahead_ms"] = ahead_ms
    exchange.reply(msgspec.json.encode(answer))


def openapi(service: Service, exchange: Exchange) -> None:
    exchange.reply(service.document)


@routes.add("GET", "/v0/info", scopes=READ)
def info(service: Service, exchange: Exchange) -> None:
    node, off = service.node, service.engine.writes_off
    about: dict[str, Any] = {
        "version": topics.__version__,
        "started_ms": service.started_ms,
        "writes": off is None,
        "reason": off,
        "disk": {"free_bytes": node.disk.room().free_bytes, "reserve_bytes": node.disk.reserve_bytes},
    }
    if exchange.key is None or exchange.key.can(ADMIN):
        about["data_dir"] = service.engine.dirs.root
    answer(exchange, about)
