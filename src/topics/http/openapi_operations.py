"""What each route is for, in words and models: the part of the OpenAPI document that its flags cannot tell.

Requests are the structs that the handlers decode into; a write, which is never decoded whole, has a model that a
test compares with its decoder. Errors are those beyond what any route of its kind has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from topics.http import openapi_models as models
from topics.http.admin_routes import PurgeBody
from topics.http.cursor_routes import CursorBody
from topics.http.heads import ARROW
from topics.http.queue_routes import ClaimBody, ExtendBody, HeldBody, NackBody
from topics.http.record_routes import DeleteBody, DiffBody
from topics.http.router_routes import RouterBody
from topics.http.scan_routes import ScanBody
from topics.http.sse import CONTENT_TYPE as EVENTS
from topics.http.stage_routes import CommitBody
from topics.http.topic_routes import DEFAULT_PAGE, MAX_PAGE
from topics.http.watch_routes import WatchBody
from topics.values.config import LEASE_MS_RANGE, ConfigBody
from topics.values.settings import MAX_CLAIM, MAX_IDEMPOTENCY_KEY_BYTES, MAX_NODE_BYTES

TEXT, EVENT_STREAM, ARROW_STREAM = "text/plain", EVENTS.decode(), ARROW.decode()


@dataclass(frozen=True, kw_only=True)
class Query:
    name: str
    text: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Operation:
    id: str
    tag: str
    summary: str
    # By status: a model for JSON, or the name of another media type.
    answers: dict[int, Any]
    # The struct a JSON body is decoded into, or the media type of another body.
    takes: Any = None
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    errors: tuple[str, ...] = ()


def _text(name: str, text: str, *, required: bool = False, **keywords: Any) -> Query:
    return Query(name=name, text=text, schema={"type": "string", **keywords}, required=required)


def _switch(name: str, text: str, *, default: bool) -> Query:
    return Query(name=name, text=text, schema={"type": "boolean", "default": default})


def _number(name: str, text: str, **keywords: Any) -> Query:
    return Query(name=name, text=text, schema={"type": "integer", "minimum": 0, **keywords})


_PAGE = (
    _text("prefix", "Only names that begin like this."),
    _number(
        "page_size",
        "Entries in one answer; limited, and the default when it is no number.",
        default=DEFAULT_PAGE,
        maximum=MAX_PAGE,
    ),
    _text("cursor", "`next_cursor` of the page before."),
)
_KEY_HEADER = _text(
    "Idempotency-Key", "Used when the body names no key.", maxLength=MAX_IDEMPOTENCY_KEY_BYTES
)
_LAST_EVENT = _text("Last-Event-ID", "The id of the last event received; it can rewind, never advance.")
_WORK = (
    _text("node", "Who works.", required=True, minLength=1, maxLength=MAX_NODE_BYTES),
    _number("max", "Most jobs at a time; limited.", default=1, maximum=MAX_CLAIM),
    _number("lease_ms", f"Limited to {LEASE_MS_RANGE[0]} to {LEASE_MS_RANGE[1]}.", maximum=LEASE_MS_RANGE[1]),
)

_TOPIC, _ROUTER = "topic_not_found", "router_not_found"
_QUEUE = (_TOPIC, "not_a_queue")
_BULK = ("record_too_large", "batch_too_large")
_WRITE = (_TOPIC, "record_too_large", "batch_too_large", "topic_full")
_ONE, _NAMED = "/v0/topics/:topic", "/v0/topics/:topic/cursors/:consumer"
_SNAPSHOT = "/v0/topics/:topic/segments/:snapshot"
_PURGE, _HOLD = "/v0/admin/purge", "/v0/admin/backup"


def _probe(name: str, summary: str, answer: Any, *errors: str) -> Operation:
    return Operation(id=name, tag="Probes", summary=summary, answers={200: answer}, errors=errors)


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v0/health"): _probe("health", "Does the process answer?", models.Health),
    ("GET", "/healthz"): _probe("healthz", "The same as /v0/health.", models.Health),
    ("GET", "/v0/ready"): _probe(
        "ready", "Are data requests answered?", models.Ready, "not_ready", "shutting_down"
    ),
    ("GET", "/readyz"): _probe(
        "readyz", "The same as /v0/ready.", models.Ready, "not_ready", "shutting_down"
    ),
    ("GET", "/v0/openapi.json"): _probe("openapi", "This document.", dict[str, Any]),
    ("GET", "/v0/metrics"): Operation(
        id="metrics",
        tag="Probes",
        summary="Metrics as Prometheus text, or as JSON when Accept contains application/json.",
        answers={200: (TEXT, dict[str, Any])},
    ),
    ("GET", "/v0/topics"): Operation(
        id="listTopics",
        tag="Topics",
        summary="Topics the key may see, sorted by name.",
        query=(*_PAGE, _switch("touch", "Counts as a read of every topic listed.", default=False)),
        answers={200: models.TopicList},
    ),
    ("PUT", _ONE): Operation(
        id="putTopic",
        tag="Topics",
        summary="Create a topic, or replace its whole configuration.",
        takes=ConfigBody,
        answers={200: models.TopicPut, 201: models.TopicPut},
        errors=("topic_exists_incompatible",),
    ),
    ("GET", _ONE): Operation(
        id="showTopic",
        tag="Topics",
        summary="The state of a topic.",
        query=(_switch("touch", "Counts as a read.", default=True),),
        answers={200: models.TopicState},
        errors=(_TOPIC,),
    ),
    ("DELETE", _ONE): Operation(
        id="dropTopic",
        tag="Topics",
        summary="Remove a topic, its records, and the routers at either end.",
        query=(_switch("if_empty", "Refuse when there is a live record.", default=False),),
        answers={200: models.TopicDropped},
        errors=("topic_not_empty",),
    ),
    ("POST", _ONE): Operation(
        id="append",
        tag="Records",
        summary="Write records: all of them or none.",
        takes=models.WriteBody,
        query=(_switch("return_seqs", "List the seqs in the answer.", default=True),),
        headers=(_KEY_HEADER,),
        answers={200: models.Appended, 201: models.Appended},
        errors=_WRITE,
    ),
    ("POST", _ONE + "/diff"): Operation(
        id="diff",
        tag="Records",
        summary="Read what lies behind a cursor, or wait for it.",
        takes=DiffBody,
        answers={200: models.Diff},
        errors=(_TOPIC,),
    ),
    ("POST", _ONE + "/delete"): Operation(
        id="deleteRecords",
        tag="Records",
        summary="Delete records below a seq, with a tag, or both.",
        takes=DeleteBody,
        answers={200: models.Deleted},
        errors=(_TOPIC,),
    ),
    ("POST", _ONE + "/claim"): Operation(
        id="claim",
        tag="Queues",
        summary="Lease jobs.",
        takes=ClaimBody,
        answers={200: models.Claimed},
        errors=_QUEUE,
    ),
    ("POST", _ONE + "/ack"): Operation(
        id="ack",
        tag="Queues",
        summary="Finish jobs for good.",
        takes=HeldBody,
        answers={200: models.Acked},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("POST", _ONE + "/nack"): Operation(
        id="nack",
        tag="Queues",
        summary="Give jobs back, now or after a delay.",
        takes=NackBody,
        answers={200: models.Nacked},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("POST", _ONE + "/extend"): Operation(
        id="extend",
        tag="Queues",
        summary="Keep jobs longer.",
        takes=ExtendBody,
        answers={200: models.Extended},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("GET", _ONE + "/work"): Operation(
        id="work",
        tag="Queues",
        summary="A stream of jobs; what is not finished when it ends is free again.",
        query=_WORK,
        answers={200: EVENT_STREAM},
        errors=_QUEUE,
    ),
    ("GET", "/v0/routers"): Operation(
        id="listRouters",
        tag="Routers",
        summary="Routers the key may see, sorted by name.",
        query=(
            *_PAGE,
            _text("source", "Only routers that read this topic."),
            _text("dest", "Only routers that feed this topic."),
        ),
        answers={200: models.RouterList},
    ),
    ("PUT", "/v0/routers/:router"): Operation(
        id="putRouter",
        tag="Routers",
        summary="Create a router, or change how it copies.",
        takes=RouterBody,
        answers={200: models.RouterPut, 201: models.RouterPut},
        errors=(_TOPIC, "router_cycle", "topic_exists_incompatible"),
    ),
    ("GET", "/v0/routers/:router"): Operation(
        id="showRouter",
        tag="Routers",
        summary="A router, and how much it has forwarded.",
        answers={200: models.RouterState},
        errors=(_ROUTER,),
    ),
    ("DELETE", "/v0/routers/:router"): Operation(
        id="dropRouter",
        tag="Routers",
        summary="Stop forwarding; copies stay.",
        answers={200: models.RouterDropped},
    ),
    ("POST", "/v0/watch"): Operation(
        id="watch",
        tag="Streams",
        summary="Open a watch session over up to 256 topics.",
        takes=WatchBody,
        query=(_switch("lenient", "Leave out topics that do not exist.", default=False),),
        answers={200: models.WatchSession},
        errors=(_TOPIC,),
    ),
    ("GET", "/v0/watch/:wid"): Operation(
        id="watchStream",
        tag="Streams",
        summary="The stream of a watch session. Only the key that opened the session may read it.",
        headers=(_LAST_EVENT,),
        answers={200: EVENT_STREAM},
        errors=("not_found",),
    ),
    ("GET", "/v0/ws"): Operation(
        id="socket",
        tag="Streams",
        summary="A WebSocket for subscribing and publishing; every message is a JSON object in a text frame.",
        answers={101: None},
    ),
    ("POST", _ONE + "/scan"): Operation(
        id="scan",
        tag="Bulk",
        summary="Read a range of records as columns.",
        takes=ScanBody,
        answers={200: ARROW_STREAM},
        errors=(_TOPIC,),
    ),
    ("POST", _ONE + "/append"): Operation(
        id="bulkAppend",
        tag="Bulk",
        summary="Write columns: every record batch is one write.",
        takes=ARROW_STREAM,
        query=(
            _switch("create", "Whether a missing topic is created.", default=True),
            _text("idempotency_key", "Makes a retry safe.", maxLength=MAX_IDEMPOTENCY_KEY_BYTES),
        ),
        headers=(_KEY_HEADER,),
        answers={200: models.BulkAppended, 201: models.BulkAppended},
        errors=_WRITE,
    ),
    ("GET", _ONE + "/segments"): Operation(
        id="takeSnapshot",
        tag="Bulk",
        summary="The files that hold a topic's sealed records; they stay while the snapshot is leased.",
        answers={200: models.Manifest},
        errors=(_TOPIC,),
    ),
    ("POST", _SNAPSHOT + "/renew"): Operation(
        id="renewSnapshot",
        tag="Bulk",
        summary="Keep a snapshot's files for longer.",
        answers={200: models.SnapshotLease},
        errors=(_TOPIC, "not_found"),
    ),
    ("DELETE", _SNAPSHOT): Operation(
        id="releaseSnapshot",
        tag="Bulk",
        summary="Let go of a snapshot's files.",
        answers={200: models.SnapshotReleased},
        errors=(_TOPIC,),
    ),
    ("GET", _ONE + "/ledger"): Operation(
        id="ledger",
        tag="Bulk",
        summary="Why seqs are missing.",
        answers={200: models.Ledger},
        errors=(_TOPIC,),
    ),
    ("GET", _ONE + "/cursors"): Operation(
        id="listCursors",
        tag="Bulk",
        summary="The named cursors of a topic.",
        answers={200: models.CursorList},
        errors=(_TOPIC,),
    ),
    ("GET", _NAMED): Operation(
        id="showCursor",
        tag="Bulk",
        summary="A named cursor and its lag.",
        answers={200: models.CursorState},
        errors=(_TOPIC, "not_found"),
    ),
    ("PUT", _NAMED): Operation(
        id="putCursor",
        tag="Bulk",
        summary="Set a named cursor.",
        takes=CursorBody,
        answers={200: models.CursorPut, 201: models.CursorPut},
        errors=(_TOPIC,),
    ),
    ("DELETE", _NAMED): Operation(
        id="dropCursor",
        tag="Bulk",
        summary="Remove a named cursor.",
        answers={200: models.CursorDropped},
        errors=(_TOPIC,),
    ),
    ("PUT", "/v0/stages/:id/parts/:n"): Operation(
        id="putPart",
        tag="Bulk",
        summary="Stage rows; nothing is visible before the commit.",
        takes=ARROW_STREAM,
        query=(_text("topic", "For rows that name no topic."),),
        answers={200: models.StagePart},
        errors=_BULK,
    ),
    ("POST", "/v0/stages/:id/commit"): Operation(
        id="commitStage",
        tag="Bulk",
        summary="Make the rows of some parts visible, all at once and only once.",
        takes=CommitBody,
        answers={200: models.StageCommitted},
        errors=(*_WRITE, "not_found", "stage_conflict"),
    ),
    ("DELETE", "/v0/stages/:id"): Operation(
        id="dropStage",
        tag="Bulk",
        summary="Forget a stage.",
        answers={200: models.StageDropped},
    ),
    ("POST", _PURGE): Operation(
        id="startPurge",
        tag="Operations",
        summary="Remove the bytes of deleted records from the disk, in the background.",
        takes=PurgeBody,
        answers={202: models.PurgeState},
        errors=(_TOPIC,),
    ),
    ("GET", _PURGE + "/:purge"): Operation(
        id="showPurge",
        tag="Operations",
        summary="How far a purge has come.",
        answers={200: models.PurgeState},
        errors=("not_found",),
    ),
    ("POST", _HOLD): Operation(
        id="holdFiles",
        tag="Operations",
        summary="Which files make up a backup of this moment; they stay as they are while the hold is leased.",
        answers={200: models.HeldFiles},
    ),
    ("POST", _HOLD + "/:hold/renew"): Operation(
        id="renewHold",
        tag="Operations",
        summary="Keep the files of a backup for longer.",
        answers={200: models.HoldLease},
        errors=("not_found",),
    ),
    ("DELETE", _HOLD + "/:hold"): Operation(
        id="releaseHold",
        tag="Operations",
        summary="Let go of the files of a backup.",
        answers={200: models.HoldReleased},
    ),
}
