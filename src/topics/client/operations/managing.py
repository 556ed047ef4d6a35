"""The operations on topics, records to delete, routers, cursors and the server itself."""

from urllib.parse import urlencode

from topics.client.errors import Refused
from topics.client.operations.settings import check_settings, resolved
from topics.client.records import Answer
from topics.client.wire.address import path
from topics.client.wire.effects import Operation, Pause, WireRequest
from topics.client.wire.session import Json, Session, topic_path

PAGE = 1000
PURGE_POLL_S = 0.2


class Pages:
    """A list of the server, page by page. `names` are the attributes for keys that cannot be one."""

    def __init__(
        self, session: Session, target: str, key: str, query: Json, names: dict[str, str] | None = None
    ) -> None:
        self._session = session
        self._target = target
        self._key = key
        self._query = query
        self._names = names or {}
        self._is_over = False

    def next_page(self) -> Operation[list[Answer] | None]:
        if self._is_over:
            return None
        query = "?" + urlencode(self._query) if self._query else ""
        page = yield from self._session.ask("GET", self._target + query)
        self._is_over = "next_cursor" not in page
        self._query["cursor"] = page.get("next_cursor")
        names = self._names
        return [
            Answer({names.get(key, key): value for key, value in entry.items()}) for entry in page[self._key]
        ]


def topics(session: Session, prefix: str) -> Pages:
    query = {"page_size": PAGE, **({"prefix": prefix} if prefix else {})}
    return Pages(session, path("topics"), "topics", query)


def routers(session: Session) -> Pages:
    return Pages(session, path("routers"), "routers", {"page_size": PAGE})


def ledger(session: Session, topic: str) -> Pages:
    names = {"from": "first_seq", "to": "last_seq"}
    return Pages(session, topic_path(topic) + "/ledger", "ranges", {"page_size": PAGE}, names)


def cursors(session: Session, topic: str) -> Pages:
    return Pages(session, topic_path(topic) + "/cursors", "cursors", {})


def describe(session: Session, topic: str) -> Operation[Answer]:
    return Answer((yield from session.ask("GET", topic_path(topic) + "?touch=false")))


def create(session: Session, topic: str, settings: Json) -> Operation[Answer]:
    wanted = check_settings(settings)
    broken: list[Exception] = []
    try:
        headers = (("If-None-Match", "*"),)
        return Answer(
            (yield from session.ask("PUT", topic_path(topic), wanted, headers=headers, broken=broken))
        )
    except Refused as refusal:
        if refusal.code != "topic_exists" or not broken:
            raise
        # The attempt that was not answered may have made it: then it is new and has these settings.
        state = yield from session.ask("GET", topic_path(topic) + "?touch=false")
        if state["config"] != resolved(wanted) or state["last_write_ts"] is not None:
            raise
        return Answer({"topic": topic, "created": True, "config": state["config"]})


def configure(session: Session, topic: str, settings: Json) -> Operation[Answer]:
    """Change these settings; the others stay."""
    check_settings(settings)
    found = yield from session.ask("GET", topic_path(topic) + "?touch=false")
    kept = {name: value for name, value in found["config"].items() if value is not None}
    if "durability" in settings or "durable" in settings:
        # One follows from the other: the given one decides.
        kept = {name: value for name, value in kept.items() if name not in ("durability", "durable")}
    return Answer((yield from session.ask("PUT", topic_path(topic), kept | settings)))


def delete(
    session: Session,
    topic: str,
    before_seq: int | None,
    tag: str | None,
    seqs: list[int] | None,
    dry_run: bool,
) -> Operation[Answer]:
    selectors: Json = {"before_seq": before_seq, "match": tag, "seqs": seqs}
    body = {name: value for name, value in selectors.items() if value is not None}
    if not body:
        raise TypeError("say what to delete: before_seq, tag or seqs")
    if dry_run:
        body["dry_run"] = True
    return Answer((yield from session.ask("POST", topic_path(topic) + "/delete", body)))


def drop(session: Session, topic: str, if_empty: bool, dry_run: bool) -> Operation[Answer]:
    asked = [name for name, wanted in (("if_empty", if_empty), ("dry_run", dry_run)) if wanted]
    query = "?" + "&".join(f"{name}=true" for name in asked) if asked else ""
    return Answer((yield from session.ask("DELETE", topic_path(topic) + query)))


def route(session: Session, name: str, source: str, dest: str, tag: str | None) -> Operation[Answer]:
    body: Json = {"source": source, "dest": dest}
    if tag is not None:
        body["filter"] = tag
    return Answer((yield from session.ask("PUT", path("routers", name), body)))


def unroute(session: Session, name: str) -> Operation[Answer]:
    return Answer((yield from session.ask("DELETE", path("routers", name))))


def purge(session: Session) -> Operation[Answer]:
    """Remove the bytes of deleted records from the disk, and wait until they are gone."""
    state = yield from session.ask("POST", path("admin", "purge"), {"topics": None})
    while state["state"] not in ("done", "failed"):
        yield Pause(PURGE_POLL_S)
        state = yield from session.ask("GET", path("admin", "purge", state["purge"]))
    return Answer(state)


def metrics(session: Session) -> Operation[Json]:
    return (yield from session.ask("GET", path("metrics"), headers=(("Accept", "application/json"),)))


def ready(session: Session) -> Operation[Json]:
    return (yield from session.ask("GET", path("ready")))


def info(session: Session) -> Operation[Json]:
    return (yield from session.ask("GET", path("info")))


def get(session: Session, topic: str, seq: int) -> Operation[bytes]:
    response = yield from session.fetch(
        WireRequest(method="GET", target=f"{topic_path(topic)}/records/{seq}")
    )
    return response.body
