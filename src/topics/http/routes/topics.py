"""Topics themselves: create, show, list, delete."""

from collections.abc import Callable
from typing import Any

from topics.core import (
    ConfigBody,
    TopicConfig,
    config_to_json,
    config_warnings,
    eviction_warning,
    invalid,
    resolve_config,
)
from topics.http.admission.auth import ADMIN, DELETE, READ, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import PAGING, page, shown, start_of_page, wants_only_new
from topics.http.routes.service import Service, answer, check_dead_letter, routes, when_copied
from topics.http.routing import Body
from topics.log import (
    DELETED,
    Topic,
    drop_topic,
    keys_kept_ms,
    preview_topic,
    put_topic,
    refuse_unless_empty,
    whole,
)

_ONE = "/v0/topics/:topic"


@routes.add("PUT", _ONE, scopes=ADMIN, body=Body.OPTIONAL, accepts=ConfigBody, query=("dry_run",))
def put(service: Service, exchange: Exchange, body: ConfigBody) -> None:
    config = resolve_config(body)
    check_dead_letter(exchange.key, config)
    name = exchange.name
    warnings = config_warnings(config)
    if _is_dry_run(exchange):
        _preview_put(service, exchange, config, warnings)
        return

    def evicted(count: int) -> None:
        if count:
            warnings.append(eviction_warning(config, count))

    def done(created: bool) -> None:
        _answer_put(exchange, config, warnings, created)

    def applied(created: bool) -> None:
        topic = service.engine.find(name)
        if topic is not None and config.is_queue and config.leases_durable and not created:
            topic.extension.keep_leases(lambda: done(created), exchange.fail)
        else:
            done(created)

    existing = service.engine.find(name)
    if existing is not None and existing.config.is_queue:
        # The config under which leases were given decides whether they outlived a restart.
        existing.extension.refresh()
    put_topic(
        service.engine,
        name,
        config,
        applied,
        exchange.fail,
        only_new=wants_only_new(exchange),
        last_check=exchange.refuse_unknown_fields,
        evicted=evicted,
    )


def _preview_put(service: Service, exchange: Exchange, config: TopicConfig, warnings: "list[str]") -> None:
    """Answer with the number of records that the config would remove. Nothing changes."""
    name = exchange.name
    removes = preview_topic(service.engine, name, config, only_new=wants_only_new(exchange))
    exchange.refuse_unknown_fields()
    _answer_put(exchange, config, warnings, False, removes=removes, dry_run=True)


def _answer_put(
    exchange: Exchange, config: TopicConfig, warnings: list[str], created: bool, **more: Any
) -> None:
    body: dict[str, Any] = {
        "topic": exchange.name,
        "created": created,
        "config": config_to_json(config),
        **more,
    }
    if warnings:
        body["warnings"] = warnings
    answer(exchange, body, 201 if created else 200)


@routes.add("GET", _ONE, scopes=READ, query=("touch",), enter=when_copied)
def show(service: Service, exchange: Exchange) -> None:
    topic = service.current_topic(exchange)
    if exchange.query_flag("touch", True):
        service.engine.note_read(topic)
    body: dict[str, Any] = {
        **shown(topic, "topic", "type", "head_seq", "earliest_seq"),
        "next_seq": topic.head + 1,
        **shown(topic, "count", "bytes", "epoch"),
        "config": config_to_json(topic.config),
        "effective_priority": service.engine.priority_of(topic),
        **shown(topic, "last_write_ts", "last_read_ts"),
        "idempotency_kept_ms": keys_kept_ms(topic, service.engine.now()),
    }
    if topic.config.is_queue:
        body["queue"] = topic.extension.counters()
    answer(exchange, body)


@routes.add("GET", "/v0/topics", scopes=READ, query=("touch", "detail", *PAGING))
def list_topics(service: Service, exchange: Exchange) -> None:
    prefix = exchange.query("prefix") or ""
    touch = exchange.query_flag("touch", False)
    detail = exchange.query_flag("detail", False)
    key, engine = exchange.key, service.engine
    names = engine.names_after(start_of_page(exchange), prefix)
    exchange.refuse_unknown_fields()
    topics = (engine.by_name[name] for name in names if key is None or key.allows(name))

    def entry(topic: Topic) -> dict[str, Any]:
        engine.refresh(topic)
        if touch:
            engine.note_read(topic)
        told = shown(topic, "topic", "head_seq", "earliest_seq", "count", "bytes", "durable")
        told["effective_priority"] = engine.priority_of(topic)
        return told | (_details(topic) if detail else {})

    answer(exchange, page(exchange, "topics", topics, entry))


@routes.add("DELETE", _ONE, scopes=DELETE, query=("if_empty", "dry_run"))
def drop(service: Service, exchange: Exchange) -> None:
    name, if_empty = exchange.name, exchange.query_flag("if_empty", False)
    dry_run = _is_dry_run(exchange)
    exchange.refuse_unknown_fields()
    if dry_run:
        _preview_drop(service, exchange, if_empty)
        return
    removed = service.node.routers.touching(exchange.name, _may_know(exchange.key))
    topic = service.engine.find(name)
    if topic is not None:
        service.node.routers.pull_from(topic)

    def done(deleted: bool) -> None:
        body = {"topic": name, "deleted": deleted, "routers_removed": removed if deleted else []}
        answer(exchange, body)

    drop_topic(service.engine, name, if_empty, done, exchange.fail)


def _preview_drop(service: Service, exchange: Exchange, if_empty: bool) -> None:
    """Answer with what a delete would remove. Nothing changes, and the topic does not count as read."""
    topic = service.engine.find(exchange.name)
    if topic is not None:
        service.admission.bring_up_to_date(topic)
        refuse_unless_empty(topic, if_empty)
    body = {
        "topic": exchange.name,
        "deleted": False,
        "routers_removed": service.node.routers.touching(exchange.name, _may_know(exchange.key)),
        "count": 0 if topic is None else topic.live_count,
        "bytes": 0 if topic is None else topic.live_bytes,
        "dry_run": True,
    }
    answer(exchange, body)


def _may_know(key: ApiKey | None) -> Callable[[str], bool]:
    return (lambda _: True) if key is None else key.allows


def _is_dry_run(exchange: Exchange) -> bool:
    """Not one of the flags that fall back to their default: this one would take a topic with it."""
    if exchange.query("dry_run") is None:
        return False
    dry_run = exchange.query_flag("dry_run", None)
    if dry_run is None:
        raise invalid("dry_run must be true or false")
    return dry_run


def _details(topic: Topic) -> dict[str, Any]:
    about: dict[str, Any] = {
        **shown(topic, "type", "durability", "epoch"),
        **missing(topic),
        **shown(topic, "last_write_ts", "last_read_ts"),
    }
    if topic.config.is_queue:
        about["queue"] = topic.extension.counters()
    return about


def missing(topic: Topic) -> dict[str, int]:
    """Return the numbers of records that were deleted, and that readers lost without a delete."""
    counts = [sum(kind) for kind in zip(*(bucket.missing for bucket in whole(topic)), strict=True)]
    deleted = counts[DELETED] if counts else 0
    return {"lost": sum(counts) - deleted, "deleted": deleted}
