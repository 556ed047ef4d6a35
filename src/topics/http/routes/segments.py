"""For readers that do their own reading: which files hold what."""

import os
from typing import Any

from topics.core import ApiError
from topics.flow.pins import SealedView
from topics.http.admission.auth import READ
from topics.http.exchange import Exchange
from topics.http.routes.fields import shown
from topics.http.routes.service import Service, answer, routes, when_copied

_EVERY = "/v0/topics/:topic/segments"
_ONE = _EVERY + "/:snapshot"


# Files are shared by topics: a reader that may open them may read all of those topics.
@routes.add("GET", _EVERY, scopes=READ, all_names=True, enter=when_copied)
def take(service: Service, exchange: Exchange) -> None:
    topic = service.topic_to_read(exchange)
    view = service.node.pins.take(topic)
    body = {
        **_lease(view),
        **shown(topic, "topic", "epoch", "head_seq", "earliest_seq", "loss_line", "seq_base", "ttl_ms"),
        "now": service.engine.now(),
        "data_dir": os.path.abspath(service.engine.dirs.root),
        "runs": view.runs,
        "tail_from_seq": view.tail_from_seq,
        "holes": [{"gap_from": a, "gap_to": b, "reason": reason} for a, b, reason in view.holes],
    }
    answer(exchange, body)
    view.was_told()


@routes.add("POST", _ONE + "/renew", scopes=READ, all_names=True)
def renew(service: Service, exchange: Exchange) -> None:
    view = service.node.pins.renew(service.topic(exchange), exchange.params[0])
    if view is None:
        raise ApiError("not_found", "no such snapshot; its lease may have run out")
    answer(exchange, _lease(view))


@routes.add("DELETE", _ONE, scopes=READ, all_names=True)
def release(service: Service, exchange: Exchange) -> None:
    released = service.node.pins.release(service.topic(exchange), exchange.params[0])
    answer(exchange, {"snapshot": exchange.params[0], "released": released})


def _lease(view: SealedView) -> dict[str, Any]:
    return {"snapshot": view.id, "expires_ms": view.expires_ms}
