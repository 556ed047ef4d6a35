"""For readers that do their own reading: which files hold what."""

import os
from typing import Any

from topics.core import ApiError
from topics.flow.pins import SealedView, SegmentPins
from topics.http.admission.auth import READ
from topics.http.exchange import Exchange
from topics.http.routes.service import Service, answer
from topics.http.routing import Route


class SegmentRoutes:
    def __init__(self, service: Service, pins: SegmentPins) -> None:
        self._service = service
        self._engine = service.engine
        self._pins = pins

    def routes(self) -> list[Route]:
        every = "/v0/topics/:topic/segments"
        one = every + "/:snapshot"
        # Files are shared by topics: a reader that may open them may read all of those topics.
        return [
            Route(
                "GET", every, self.take, scopes=READ, all_names=True, enter=self._service.enter_with_copies
            ),
            Route("POST", one + "/renew", self.renew, scopes=READ, all_names=True),
            Route("DELETE", one, self.release, scopes=READ, all_names=True),
        ]

    def take(self, exchange: Exchange) -> None:
        self._service.topic(exchange)
        topic = self._service.admission.read(exchange.name)
        view = self._pins.take(topic)
        body = {
            **_lease(view),
            "topic": topic.name,
            "epoch": topic.id,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
            "loss_line": topic.loss_line,
            "seq_base": topic.seq_base,
            "ttl_ms": topic.config.ttl_ms,
            "now": self._engine.now(),
            "data_dir": os.path.abspath(self._engine.dirs.root),
            "runs": view.runs,
            "tail_from_seq": view.tail_from_seq,
            "holes": [{"gap_from": a, "gap_to": b, "reason": reason} for a, b, reason in view.holes],
        }
        answer(exchange, body)
        view.was_told()

    def renew(self, exchange: Exchange) -> None:
        view = self._pins.renew(self._service.topic(exchange), exchange.params[0])
        if view is None:
            raise ApiError("not_found", "no such snapshot; its lease may have run out")
        answer(exchange, _lease(view))

    def release(self, exchange: Exchange) -> None:
        released = self._pins.release(self._service.topic(exchange), exchange.params[0])
        answer(exchange, {"snapshot": exchange.params[0], "released": released})


def _lease(view: SealedView) -> dict[str, Any]:
    return {"snapshot": view.id, "expires_ms": view.expires_ms}
