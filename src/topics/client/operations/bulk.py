"""Requests of bulk readers and writers: scans, sealed files, stages, cursors and reports of pipelines."""

from typing import Any
from urllib.parse import urlencode

from topics.client.encoding import encode_json
from topics.client.errors import TopicsError
from topics.client.wire.address import path
from topics.client.wire.effects import (
    Broken,
    CloseStream,
    NotConnected,
    Open,
    Operation,
    Receive,
    Response,
    WireRequest,
)
from topics.client.wire.session import Backoff, Json, Session, refused_by, retry_after_s, topic_path

ARROW_STREAM = "application/vnd.apache.arrow.stream"
PAGE = 1000


def page(session: Session, what: str, query: Json) -> Operation[Json]:
    """One page of a list."""
    return (yield from session.ask("GET", f"{path(what)}?{urlencode(query)}"))


def state(session: Session, topic: str) -> Operation[Json]:
    """State of a topic, without counting as a reader of it."""
    return (yield from session.ask("GET", topic_path(topic) + "?touch=false"))


def scan(session: Session, topic: str, request: Json) -> Operation[Any]:
    """The stream of a scan, its body not read yet."""
    asked = WireRequest(method="POST", target=topic_path(topic) + "/scan", body=encode_json(request))
    backoff = Backoff(session.retry_s)
    while True:
        asked_s = 0.0
        failure: TopicsError
        try:
            response: Response
            response, stream = yield Open(asked)
            refused = refused_by(response)
            if refused is None:
                return stream
            if not session.rule.passes(refused):
                raise refused
            asked_s, failure = retry_after_s(response), refused
        except (NotConnected, Broken) as error:
            failure = session.rule.unreachable(session.url, error)
        pause = backoff.next_pause(asked_s)
        if pause is None:
            raise failure
        yield pause


def receive(_: Session, stream: Any, wait_s: float) -> Operation[bytes | None]:
    """More bytes of a stream; empty at its end, None after `wait_s` of silence."""
    data: bytes | None = yield Receive(stream, wait_s)
    return data


def close(_: Session, stream: Any) -> Operation[None]:
    yield CloseStream(stream)


def segments(session: Session, topic: str) -> Operation[Json]:
    return (yield from session.ask("GET", topic_path(topic) + "/segments"))


def renew_segments(session: Session, topic: str, snapshot: str) -> Operation[Json]:
    return (yield from session.ask("POST", path("topics", topic, "segments", snapshot, "renew"), {}))


def release_segments(session: Session, topic: str, snapshot: str) -> Operation[Json]:
    return (yield from session.ask("DELETE", path("topics", topic, "segments", snapshot)))


def ledger(session: Session, topic: str) -> Operation[Json]:
    """All ranges of missing seqs and their reasons, of one epoch of the topic."""
    target = topic_path(topic) + f"/ledger?page_size={PAGE}"
    whole = part = yield from session.ask("GET", target)
    while "next_cursor" in part:
        part = yield from session.ask("GET", target + "&" + urlencode({"cursor": part["next_cursor"]}))
        if part["epoch"] != whole["epoch"]:
            # Another topic of that name has replaced it: the pages before are of the former one.
            whole = part = yield from session.ask("GET", target)
        else:
            whole["ranges"] += part["ranges"]
    whole.pop("next_cursor", None)
    return whole


def put_cursor(session: Session, topic: str, consumer: str, seq: int, epoch: int) -> Operation[Json]:
    target = path("topics", topic, "cursors", consumer)
    return (yield from session.ask("PUT", target, {"seq": seq, "epoch": epoch}))


def delete(session: Session, topic: str, selector: Json) -> Operation[Json]:
    return (yield from session.ask("POST", topic_path(topic) + "/delete", selector))


def put_part(
    session: Session, stage: str, part: str, arrow_stream: bytes, topic: str | None
) -> Operation[Response]:
    """Put rows into a stage; rows that name no topic are for `topic`."""
    query = "" if topic is None else "?" + urlencode({"topic": topic})
    target = path("stages", stage, "parts", part) + query
    request = WireRequest(method="PUT", target=target, body=arrow_stream, content_type=ARROW_STREAM)
    return (yield from session.fetch(request))


def commit_stage(
    session: Session, stage: str, identity: str, batch: int, parts: list[str]
) -> Operation[Json]:
    request = {"identity": {"id": identity, "batch": batch}, "parts": parts}
    return (yield from session.ask("POST", path("stages", stage, "commit"), request))


def drop_stage(session: Session, stage: str) -> Operation[Json]:
    return (yield from session.ask("DELETE", path("stages", stage)))


def put_pipeline(session: Session, name: str, report: Json) -> Operation[Json]:
    """Report the state of a pipeline."""
    return (yield from session.ask("PUT", path("pipelines", name), report))


def router(session: Session, name: str) -> Operation[Json]:
    return (yield from session.ask("GET", path("routers", name)))


def start_purge(session: Session, topics: list[str] | None) -> Operation[Json]:
    """Begin to remove the bytes of what is deleted; `purge` returns how far it is."""
    return (yield from session.ask("POST", path("admin", "purge"), {"topics": topics}))


def purge(session: Session, purge_id: str) -> Operation[Json]:
    return (yield from session.ask("GET", path("admin", "purge", purge_id)))
