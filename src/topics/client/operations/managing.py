"""Operations on topics, records to delete, routers, cursors, purges and the server itself."""

from urllib.parse import urlencode

from topics.client.errors import Refused
from topics.client.operations.settings import check_settings, resolved
from topics.client.records import Answer
from topics.client.wire.requests import Operation, Response, WireRequest, path
from topics.client.wire.session import Json, Session, state_path, topic_path

PAGE = 1000
PURGE_POLL_S = 0.2
# Of a request that must not change what exists.
ONLY_NEW = (("If-None-Match", "*"),)


class Pages:
    """A list of the server, page by page. `key` is the key of the entries in an answer."""

    def __init__(self, session: Session, target: str, key: str, query: Json) -> None:
        self._session = session
        self._target = target
        self._key = key
        self._query = query
        self._is_over = False

    async def next_page(self) -> list[Json] | None:
        if self._is_over:
            return None
        query = "?" + urlencode(self._query) if self._query else ""
        page = await self._session.ask("GET", self._target + query)
        self._is_over = "next_cursor" not in page
        self._query["cursor"] = page.get("next_cursor")
        entries: list[Json] = page[self._key]
        return entries


def topics(session: Session, prefix: str = "", **query: str) -> Pages:
    if prefix:
        query["prefix"] = prefix
    return Pages(session, path("topics"), "topics", {"page_size": PAGE, **query})


def routers(session: Session) -> Pages:
    return Pages(session, path("routers"), "routers", {"page_size": PAGE})


def ledger(session: Session, topic: str) -> Pages:
    return Pages(session, topic_path(topic, "ledger"), "ranges", {"page_size": PAGE})


def cursors(session: Session, topic: str) -> Pages:
    return Pages(session, topic_path(topic, "cursors"), "cursors", {})


def state(session: Session, topic: str) -> Operation[Json]:
    """State of a topic, without counting as a reader of it."""
    return session.ask("GET", state_path(topic))


async def create(session: Session, topic: str, settings: Json) -> Answer:
    wanted = check_settings(settings)
    broken: list[Exception] = []
    try:
        return Answer(await session.ask("PUT", topic_path(topic), wanted, headers=ONLY_NEW, broken=broken))
    except Refused as refusal:
        if refusal.code != "topic_exists" or not broken:
            raise
        # The attempt that was not answered may have made it: then it is new and has these settings.
        found = await state(session, topic)
        if found["config"] != resolved(wanted) or found["last_write_ts"] is not None:
            raise
        return Answer({"topic": topic, "created": True, "config": found["config"]})


async def configure(session: Session, topic: str, settings: Json) -> Answer:
    """Change these settings; the others stay."""
    check_settings(settings)
    found = await state(session, topic)
    kept = {name: value for name, value in found["config"].items() if value is not None}
    if "durability" in settings or "durable" in settings:
        # One follows from the other: the given one decides.
        kept = {name: value for name, value in kept.items() if name not in ("durability", "durable")}
    return Answer(await session.ask("PUT", topic_path(topic), kept | settings))


def delete(session: Session, topic: str, selector: Json) -> Operation[Json]:
    """Delete records by `before_seq`, `match` and `seqs`. None means that one is not given."""
    body = {name: value for name, value in selector.items() if value is not None}
    if not body.keys() & {"before_seq", "match", "seqs"}:
        raise TypeError("say what to delete: before_seq, tag or seqs")
    return session.ask("POST", topic_path(topic, "delete"), body)


def drop(session: Session, topic: str, if_empty: bool, dry_run: bool) -> Operation[Json]:
    asked = [name for name, wanted in (("if_empty", if_empty), ("dry_run", dry_run)) if wanted]
    query = "?" + "&".join(f"{name}=true" for name in asked) if asked else ""
    return session.ask("DELETE", topic_path(topic) + query)


def get(session: Session, topic: str, seq: int) -> Operation[Response]:
    return session.fetch(WireRequest(method="GET", target=f"{topic_path(topic)}/records/{seq}"))


def put_cursor(session: Session, topic: str, consumer: str, seq: int, epoch: int) -> Operation[Json]:
    return session.ask("PUT", topic_path(topic, "cursors", consumer), {"seq": seq, "epoch": epoch})


def route(session: Session, name: str, source: str, dest: str, tag: str | None) -> Operation[Json]:
    body: Json = {"source": source, "dest": dest}
    if tag is not None:
        body["filter"] = tag
    return session.ask("PUT", path("routers", name), body)


def router(session: Session, name: str) -> Operation[Json]:
    return session.ask("GET", path("routers", name))


def unroute(session: Session, name: str) -> Operation[Json]:
    return session.ask("DELETE", path("routers", name))


def start_purge(session: Session, topics: list[str] | None) -> Operation[Json]:
    """Begin to remove the bytes of what is deleted; `purge` returns how far it is."""
    return session.ask("POST", path("admin", "purge"), {"topics": topics})


def purge(session: Session, purge_id: str) -> Operation[Json]:
    return session.ask("GET", path("admin", "purge", purge_id))


async def purge_all(session: Session) -> Answer:
    """Remove the bytes of deleted records from the disk, and wait until they are gone."""
    state = await start_purge(session, None)
    while state["finished_ms"] is None:
        await session.io.pause(PURGE_POLL_S)
        state = await purge(session, state["purge"])
    return Answer(state)


def put_pipeline(session: Session, name: str, report: Json) -> Operation[Json]:
    """Report the state of a pipeline."""
    return session.ask("PUT", path("pipelines", name), report)


def metrics(session: Session) -> Operation[Json]:
    return session.ask("GET", path("metrics"), headers=(("Accept", "application/json"),))


def ready(session: Session) -> Operation[Json]:
    return session.ask("GET", path("ready"))


def info(session: Session) -> Operation[Json]:
    return session.ask("GET", path("info"))
