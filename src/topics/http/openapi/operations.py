"""What each route is for, in words and models: the part of the OpenAPI document that its flags cannot tell.

Requests are the structs that the handlers decode into; a write, which is never decoded whole, has a model
that a test compares with its decoder. Errors are those beyond what any route of its kind has.
"""

from __future__ import annotations

from typing import Any

from topics.http.openapi import models
from topics.http.openapi.bulk_operations import BULK
from topics.http.openapi.describing import (
    BAD_WRITE,
    EVENT_STREAM,
    KEY_HEADER,
    NO_TOPIC,
    ONE_TOPIC,
    TEXT,
    Operation,
    number,
    switch,
    text,
)
from topics.http.routes.paging import DEFAULT_PAGE, MAX_PAGE
from topics.http.routes.queues import ClaimBody, ExtendBody, HeldBody, NackBody
from topics.http.routes.records import DeleteBody, DiffBody
from topics.http.routes.routers import RouterBody
from topics.http.routes.watch import WatchBody
from topics.values.config import LEASE_MS_RANGE, ConfigBody
from topics.values.settings import MAX_CLAIM, MAX_NODE_BYTES

_PAGE = (
    text("prefix", "Only names that begin like this."),
    number(
        "page_size",
        "Entries in one answer; limited, and the default when it is no number.",
        default=DEFAULT_PAGE,
        maximum=MAX_PAGE,
    ),
    text("cursor", "`next_cursor` of the page before."),
)
_LAST_EVENT = text("Last-Event-ID", "The id of the last event received; it can rewind, never advance.")
_WORK = (
    text("node", "Who works.", required=True, minLength=1, maxLength=MAX_NODE_BYTES),
    number("max", "Most jobs at a time; limited.", default=1, maximum=MAX_CLAIM),
    number("lease_ms", f"Limited to {LEASE_MS_RANGE[0]} to {LEASE_MS_RANGE[1]}.", maximum=LEASE_MS_RANGE[1]),
)

_QUEUE = (NO_TOPIC, "not_a_queue")


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
        query=(*_PAGE, switch("touch", "Counts as a read of every topic listed.", default=False)),
        answers={200: models.TopicList},
    ),
    ("PUT", ONE_TOPIC): Operation(
        id="putTopic",
        tag="Topics",
        summary="Create a topic, or replace its whole configuration.",
        takes=ConfigBody,
        answers={200: models.TopicPut, 201: models.TopicPut},
        errors=("topic_exists_incompatible",),
    ),
    ("GET", ONE_TOPIC): Operation(
        id="showTopic",
        tag="Topics",
        summary="The state of a topic.",
        query=(switch("touch", "Counts as a read.", default=True),),
        answers={200: models.TopicState},
        errors=(NO_TOPIC,),
    ),
    ("DELETE", ONE_TOPIC): Operation(
        id="dropTopic",
        tag="Topics",
        summary="Remove a topic, its records, and the routers at either end.",
        query=(switch("if_empty", "Refuse when there is a live record.", default=False),),
        answers={200: models.TopicDropped},
        errors=("topic_not_empty",),
    ),
    ("POST", ONE_TOPIC): Operation(
        id="append",
        tag="Records",
        summary="Write records: all of them or none.",
        takes=models.WriteBody,
        query=(switch("return_seqs", "List the seqs in the answer.", default=True),),
        headers=(KEY_HEADER,),
        answers={200: models.Appended, 201: models.Appended},
        errors=BAD_WRITE,
    ),
    ("POST", ONE_TOPIC + "/diff"): Operation(
        id="diff",
        tag="Records",
        summary="Read what lies behind a cursor, or wait for it.",
        takes=DiffBody,
        answers={200: models.Diff},
        errors=(NO_TOPIC,),
    ),
    ("POST", ONE_TOPIC + "/delete"): Operation(
        id="deleteRecords",
        tag="Records",
        summary="Delete records below a seq, with a tag, or both.",
        takes=DeleteBody,
        answers={200: models.Deleted},
        errors=(NO_TOPIC,),
    ),
    ("POST", ONE_TOPIC + "/claim"): Operation(
        id="claim",
        tag="Queues",
        summary="Lease jobs.",
        takes=ClaimBody,
        answers={200: models.Claimed},
        errors=_QUEUE,
    ),
    ("POST", ONE_TOPIC + "/ack"): Operation(
        id="ack",
        tag="Queues",
        summary="Finish jobs for good.",
        takes=HeldBody,
        answers={200: models.Acked},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("POST", ONE_TOPIC + "/nack"): Operation(
        id="nack",
        tag="Queues",
        summary="Give jobs back, now or after a delay.",
        takes=NackBody,
        answers={200: models.Nacked},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("POST", ONE_TOPIC + "/extend"): Operation(
        id="extend",
        tag="Queues",
        summary="Keep jobs longer.",
        takes=ExtendBody,
        answers={200: models.Extended},
        errors=(*_QUEUE, "batch_too_large"),
    ),
    ("GET", ONE_TOPIC + "/work"): Operation(
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
            text("source", "Only routers that read this topic."),
            text("dest", "Only routers that feed this topic."),
        ),
        answers={200: models.RouterList},
    ),
    ("PUT", "/v0/routers/:router"): Operation(
        id="putRouter",
        tag="Routers",
        summary="Create a router, or change how it copies.",
        takes=RouterBody,
        answers={200: models.RouterPut, 201: models.RouterPut},
        errors=(NO_TOPIC, "router_cycle", "topic_exists_incompatible"),
    ),
    ("GET", "/v0/routers/:router"): Operation(
        id="showRouter",
        tag="Routers",
        summary="A router, and how much it has forwarded.",
        answers={200: models.RouterState},
        errors=("router_not_found",),
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
        query=(switch("lenient", "Leave out topics that do not exist.", default=False),),
        answers={200: models.WatchSession},
        errors=(NO_TOPIC,),
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
    **BULK,
}
