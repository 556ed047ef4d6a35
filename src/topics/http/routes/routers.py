"""Routers: create or change, show, list, delete."""

from functools import partial
from typing import Any, Literal

import msgspec

from topics.core import ApiError, require_router_name
from topics.flow.routers.definitions import Router, RouterOptions, check_ends
from topics.http.admission.auth import ADMIN, DELETE, READ, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import PAGING, page, start_of_page, wants_only_new
from topics.http.routes.service import Service, answer, check_name, routes
from topics.http.routing import Body
from topics.log import parse_match


class RouterBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: str | list[object] | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"

    def options(self) -> RouterOptions:
        match = None if self.filter is None else parse_match(self.filter)
        return RouterOptions(
            self.preserve_node,
            self.preserve_tag,
            None if match is None else match.value,
            match is not None and match.is_prefix,
            self.allow_cycle,
            self.guarantee == "exactly_once",
        )


_ONE = "/v0/routers/:router"


@routes.add("PUT", _ONE, scopes=ADMIN, body=Body.REQUIRED, accepts=RouterBody)
def put(service: Service, exchange: Exchange, body: RouterBody) -> None:
    options = body.options()
    require_router_name(exchange.name)
    check_ends(body.source, body.dest)
    for topic in (body.source, body.dest):
        check_name(exchange.key, topic)
    _require_visible(exchange.key, service.node.routers.find(exchange.name))

    def done(router: Router, created: bool) -> None:
        result = {"router": router.name, "created": created, **_definition(router)}
        answer(exchange, result, 201 if created else 200)

    try:
        service.node.routers.put(
            exchange.name,
            body.source,
            body.dest,
            options,
            done,
            exchange.fail,
            create_dest=body.create_dest,
            only_new=wants_only_new(exchange),
            last_check=exchange.refuse_unknown_fields,
        )
    except ApiError as error:
        _leave_out_foreign_names(exchange.key, error)
        raise


@routes.add("GET", _ONE, scopes=READ)
def show(service: Service, exchange: Exchange) -> None:
    dest = _router(service, exchange).dest.name
    service.admission.read_copied(exchange, dest, 0, partial(_show, service))


def _show(service: Service, exchange: Exchange) -> None:
    # Once more: it may have gone while its copies were waited for.
    router = _router(service, exchange)
    service.node.routers.pull_for_reader(router.dest)
    body = {"router": router.name, **_definition(router), "forwarded_total": router.forwarded}
    answer(exchange, body)


def _router(service: Service, exchange: Exchange) -> Router:
    router = service.node.routers.find(exchange.name)
    if router is None:
        name = exchange.name
        raise ApiError("router_not_found", f'no router named "{name}"', {"router": name})
    _require_visible(exchange.key, router)
    exchange.refuse_unknown_fields()
    return router


@routes.add("GET", "/v0/routers", scopes=READ, query=("source", "dest", "detail", *PAGING))
def list_routers(service: Service, exchange: Exchange) -> None:
    source, dest = exchange.query("source"), exchange.query("dest")
    prefix, after = exchange.query("prefix") or "", start_of_page(exchange)
    detail = exchange.query_flag("detail", False)
    routers = (
        router
        for router in service.node.routers.table.names_after(after, prefix)
        if (not source or router.source.name == source)
        and (not dest or router.dest.name == dest)
        and _is_allowed(exchange.key, router)
    )

    def entry(router: Router) -> dict[str, Any]:
        service.node.routers.pull_for_reader(router.dest)
        return _entry(router) | (_progress(router) if detail else {})

    answer(exchange, page(exchange, "routers", routers, entry))


@routes.add("DELETE", _ONE, scopes=DELETE)
def drop(service: Service, exchange: Exchange) -> None:
    _require_visible(exchange.key, service.node.routers.find(exchange.name))
    exchange.refuse_unknown_fields()

    def done(deleted: bool) -> None:
        answer(exchange, {"router": exchange.name, "deleted": deleted})

    service.node.routers.drop(exchange.name, done, exchange.fail)


def _definition(router: Router) -> dict[str, Any]:
    options, match = router.options, router.match
    return {
        "source": router.source.name,
        "dest": router.dest.name,
        "preserve_node": options.preserve_node,
        "preserve_tag": options.preserve_tag,
        "filter": None if match is None else match.to_json(),
        "allow_cycle": options.allow_cycle,
        "guarantee": _guarantee(router),
    }


def _entry(router: Router) -> dict[str, Any]:
    return {
        "router": router.name,
        "source": router.source.name,
        "dest": router.dest.name,
        "guarantee": _guarantee(router),
        "forwarded_total": router.forwarded,
    }


def _progress(router: Router) -> dict[str, Any]:
    """How far it is behind its source, and whether it waits for room in its destination."""
    match = router.match
    return {
        "filter": None if match is None else match.to_json(),
        "behind": max(router.source.head - router.cursor, 0),
        "blocked": router.is_blocked,
    }


def _guarantee(router: Router) -> str:
    return "exactly_once" if router.options.exactly_once else "at_least_once"


def _require_visible(key: ApiKey | None, router: Router | None) -> None:
    """Refuses without a word about the ends: a key must not learn names outside its prefixes."""
    if router is not None and not _is_allowed(key, router):
        raise ApiError("forbidden", f'this key may not use the router "{router.name}"')


def _leave_out_foreign_names(key: ApiKey | None, error: ApiError) -> None:
    """A loop may lead through topics that the key must not hear of."""
    if key is not None and error.code == "router_cycle" and error.detail is not None:
        error.detail["cycle"] = [topic for topic in error.detail["cycle"] if key.allows(topic)]


def _is_allowed(key: ApiKey | None, router: Router) -> bool:
    return key is None or all(map(key.allows, (router.name, router.source.name, router.dest.name)))
