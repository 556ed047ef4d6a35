"""The page of the console, and what only it asks for: the first screen, settings, keys and files."""

import asyncio
import os
from dataclasses import fields
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from math import isinf
from pathlib import Path
from typing import Any

import topics
from topics.core import invalid, variable
from topics.flow.cursors import Cursors
from topics.http.admission.auth import ADMIN, READ
from topics.http.exchange import Exchange
from topics.http.routes.auth import about_key
from topics.http.routes.fields import PAGING, page, shown, start_of_page
from topics.http.routes.service import Service, answer, routes
from topics.http.routes.topics import missing
from topics.http.routing import Route
from topics.log import Topic, written_ms

BUILT = Path(__file__).parent / "built"
FILES = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/console.js": ("console.js", b"text/javascript; charset=utf-8"),
    "/console.css": ("console.css", b"text/css; charset=utf-8"),
    "/console.svg": ("console.svg", b"image/svg+xml"),
}
# Nothing from elsewhere, nothing inline, and no text that would become markup: with trusted types, assigning
# some fails in the browser itself.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_routes(base_path: str) -> list[Route]:
    """The files of the page, which hold no data. They need no key, and are served while the server recovers:
    the page reports that itself."""
    shown = [Route("GET", path, show_page, public=True, always_open=True) for path in FILES]
    if base_path:

        def redirect(exchange: Exchange) -> None:
            # The page asks for everything by paths beside its own.
            exchange.reply(b"", 308, headers=[(b"Location", base_path.encode() + b"/")])

        shown.append(Route("GET", base_path, redirect, public=True, always_open=True))
    return shown


def show_page(exchange: Exchange) -> None:
    assert exchange.route is not None
    name, content_type = FILES[exchange.route.template]
    body, mark = _read(name)
    headers = [
        (b"Content-Security-Policy", POLICY),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"X-Frame-Options", b"DENY"),
        (b"Referrer-Policy", b"no-referrer"),
        (b"Cross-Origin-Opener-Policy", b"same-origin"),
        (b"Cross-Origin-Resource-Policy", b"same-origin"),
        # Kept, and asked about every time: after an update no browser runs the old page.
        (b"Cache-Control", b"no-cache"),
        (b"ETag", mark),
    ]
    is_known = exchange.headers.get(b"if-none-match") == mark
    exchange.reply(b"" if is_known else body, 304 if is_known else 200, content_type, headers)


@cache
def _read(name: str) -> tuple[bytes, bytes]:
    """Read when it is first asked for, so that starting does not pay for it."""
    body = (BUILT / name).read_bytes()
    return body, b'"%b"' % sha256(body).hexdigest()[:16].encode()


MOST_ROWS = 100
# A page ends here, even if it is short: a word that no name has would otherwise be looked for in all of them.
MOST_LOOKED_AT = 200_000
# Files listed of each folder; the others count in its sums.
MOST_FILES = 100


@routes.add("GET", "/v0/overview", scopes=READ, query=("find", "type", *PAGING))
async def show_overview(service: Service, exchange: Exchange) -> None:
    after, prefix = start_of_page(exchange), exchange.query("prefix") or ""
    find, kind = (exchange.query("find") or "").lower(), exchange.query("type")
    if kind not in (None, "log", "queue"):
        raise invalid("type must be log or queue")
    attention = await service.attention.items(exchange.key)
    key, engine = exchange.key, service.engine
    found = (
        topic
        for name in islice(engine.names_after(after, prefix), MOST_LOOKED_AT)
        if find in name.lower()
        and (key is None or key.allows(name))
        and (topic := engine.find(name)) is not None
        and (kind is None or topic.config.type == kind)
    )
    body: dict[str, Any] = {
        "server": _server(service, exchange),
        "key": about_key(exchange.key),
        **attention,
        **page(exchange, "topics", found, partial(_row, service), MOST_ROWS),
    }
    answer(exchange, body)


def _server(service: Service, exchange: Exchange) -> dict[str, Any]:
    node, engine = service.node, service.engine
    free, _, size = node.disk.room()
    full_in_s = node.disk.seconds_until_full()
    about: dict[str, Any] = {
        "version": topics.__version__,
        "started_ms": service.started_ms,
        "now_ms": engine.now(),
        "writes": engine.writes_off is None,
        "reason": engine.writes_off,
        "recovery_ms": round(node.recovery_seconds * 1000),
        "disk": {
            "free_bytes": free,
            "size_bytes": size,
            "reserve_bytes": node.disk.reserve_bytes,
            "full_in_ms": None if isinf(full_in_s) else round(full_in_s * 1000),
        },
        "topics": len(engine.sorted_names),
        "routers": len(node.routers.table),
        "records": engine.totals.records,
        "bytes": engine.totals.bytes,
        "damage": engine.totals.damage,
    }
    if exchange.key is None or exchange.key.can(ADMIN):
        about["data_dir"] = engine.dirs.root
    return about


def _row(service: Service, topic: Topic) -> dict[str, Any]:
    engine = service.engine
    engine.refresh(topic)
    now = engine.now()
    row: dict[str, Any] = {
        **shown(topic, "topic", "type", "durability", "head_seq", "earliest_seq", "count", "bytes"),
        **missing(topic),
        "last_write_ts": topic.last_write_ts,
        "lag": None,
    }
    if topic.config.is_queue:
        row["queue"] = topic.extension.counters()
    if service.node.cursors.has(topic.name):
        row["lag"] = _worst_lag(service, topic, now)
    return row


def _worst_lag(service: Service, topic: Topic, now: int) -> dict[str, Any] | None:
    """Return the cursor of the topic that is furthest behind."""
    cursors = service.node.cursors.of(topic.name)
    if not cursors:
        return None
    lag, cursor = max(((Cursors.lag(topic, one), one) for one in cursors), key=lambda pair: pair[0])
    next_seq = topic.floor if cursor.epoch != topic.id else cursor.seq + 1
    age = max(now - written_ms(topic, next_seq), 0) if lag else 0
    return {"consumer": cursor.consumer, "records": lag, "ms": age, "cursors": len(cursors)}


@routes.add("GET", "/v0/admin/system", scopes=ADMIN, all_names=True)
async def show_system(service: Service, exchange: Exchange) -> None:
    folders = await asyncio.to_thread(_folders, service)
    keys = [about_key(key) for key in service.keyring.keys]
    answer(exchange, {"settings": _settings(service), "keys": keys, "folders": folders})


def _settings(service: Service) -> list[dict[str, Any]]:
    """Never a secret: of those it is only told whether there are some."""
    settings, usual = service.node.settings, type(service.node.settings)()
    told: list[dict[str, Any]] = []
    for one in fields(settings):
        value = getattr(settings, one.name)
        is_default = value == getattr(usual, one.name)
        if not one.repr:
            value = "(not shown)" if value else None
        told.append({"name": variable(one.name), "value": value, "is_default": is_default})
    return told


def _folders(service: Service) -> list[dict[str, Any]]:
    dirs = service.node.engine.dirs
    places = {"journal": dirs.journal, "segments": dirs.segments, "snapshots": dirs.snapshots}
    if service.node.settings.cold_dir is not None:
        places["cold"] = service.node.settings.cold_dir
    return [_folder(name, path) for name, path in places.items()]


def _folder(name: str, path: str) -> dict[str, Any]:
    files: list[tuple[str, int, int]] = []
    try:
        for entry in os.scandir(path):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone in the meantime
            if entry.is_file(follow_symlinks=False):
                files.append((entry.name, found.st_size, found.st_mtime_ns // 1_000_000))
    except OSError:
        pass  # a directory that was moved away is told of elsewhere
    files.sort(key=lambda file: file[2], reverse=True)
    return {
        "folder": name,
        "path": path,
        "count": len(files),
        "bytes": sum(size for _, size, _ in files),
        "newest": [{"name": file, "bytes": size, "changed_ms": ms} for file, size, ms in files[:MOST_FILES]],
    }
