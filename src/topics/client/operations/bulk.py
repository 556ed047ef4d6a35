"""Requests of bulk readers and writers: scans, sealed files, whole ledgers and stages."""

from typing import Any
from urllib.parse import urlencode

from topics.client.encoding import encode_json
from topics.client.operations.managing import PAGE
from topics.client.wire.requests import Broken, NotConnected, Operation, Response, WireRequest, path
from topics.client.wire.session import Json, Retries, Retryable, Session, Transient, topic_path

ARROW_STREAM = "application/vnd.apache.arrow.stream"


async def scan(session: Session, topic: str, request: Json) -> Any:
    """The stream of a scan, its body not read yet."""
    asked = WireRequest(method="POST", target=topic_path(topic, "scan"), body=encode_json(request))
    retries = Retries(session, session.retry_s)
    while True:
        failure: Retryable
        try:
            response, stream = await session.io.open(asked)
            session.accepted(response)
            return stream
        except (NotConnected, Broken, Transient) as error:
            failure = error
        await retries.pause_after(failure)


def receive(session: Session, stream: Any, wait_s: float) -> Operation[bytes | None]:
    """More bytes of a stream; empty at its end, None after `wait_s` of silence."""
    return session.io.receive(stream, wait_s)


def segments(session: Session, topic: str) -> Operation[Json]:
    return session.ask("GET", topic_path(topic, "segments"))


def renew_segments(session: Session, topic: str, snapshot: str) -> Operation[Json]:
    return session.ask("POST", topic_path(topic, "segments", snapshot, "renew"), {})


def release_segments(session: Session, topic: str, snapshot: str) -> Operation[Json]:
    return session.ask("DELETE", topic_path(topic, "segments", snapshot))


async def ledger(session: Session, topic: str) -> Json:
    """All ranges of missing seqs and their reasons, of one epoch of the topic."""
    target = topic_path(topic, "ledger") + f"?page_size={PAGE}"
    whole = part = await session.ask("GET", target)
    while "next_cursor" in part:
        part = await session.ask("GET", target + "&" + urlencode({"cursor": part["next_cursor"]}))
        if part["epoch"] != whole["epoch"]:
            # Another topic of that name has replaced it: the pages before are of the former one.
            whole = part = await session.ask("GET", target)
        else:
            whole["ranges"] += part["ranges"]
    whole.pop("next_cursor", None)
    return whole


def put_part(
    session: Session, stage: str, part: str, arrow_stream: bytes, topic: str | None
) -> Operation[Response]:
    """Put rows into a stage; rows that name no topic are for `topic`."""
    query = "" if topic is None else "?" + urlencode({"topic": topic})
    target = path("stages", stage, "parts", part) + query
    return session.fetch(
        WireRequest(method="PUT", target=target, body=arrow_stream, content_type=ARROW_STREAM)
    )


def commit_stage(
    session: Session, stage: str, identity: str, batch: int, parts: list[str]
) -> Operation[Json]:
    request = {"identity": {"id": identity, "batch": batch}, "parts": parts}
    return session.ask("POST", path("stages", stage, "commit"), request)


def drop_stage(session: Session, stage: str) -> Operation[Json]:
    return session.ask("DELETE", path("stages", stage))
