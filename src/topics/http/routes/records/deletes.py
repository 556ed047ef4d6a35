"""Deleting records: those below a seq, with a tag, or by their seqs; or only saying what would go."""

import msgspec
from msgspec import UNSET, UnsetType

from topics.flow.large_deletes import Deletions
from topics.http.door.keys import DELETE
from topics.http.routes.fields import check_seqs, decode, unsigned_or_none
from topics.http.routes.service import Service, answer
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log import DeleteOutcome, parse_match
from topics.values import Form, invalid


class DeleteBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    before_seq: int | None = None
    match: str | list[object] | None = None
    seqs: list[int] | UnsetType = UNSET
    dry_run: bool = False


_delete = Form(DeleteBody)


class DeleteRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._deletions = Deletions(service.engine)

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v0/topics/:topic/delete", self.delete, scopes=DELETE, body=Body.REQUIRED),
        ]

    def delete(self, exchange: Exchange) -> None:
        body = decode(exchange, _delete)
        seqs = None if body.seqs is UNSET else body.seqs
        if body.before_seq is None and body.match is None and seqs is None:
            raise invalid("before_seq, match or seqs is required")
        before = unsigned_or_none(body.before_seq, "before_seq")
        match = None if body.match is None else parse_match(body.match)
        if seqs is not None:
            check_seqs(seqs)
            if not seqs:
                raise invalid("seqs must name at least one seq")
        topic = self._service.topic(exchange)
        self._service.pull(topic)

        def tell(outcome: DeleteOutcome) -> None:
            result = {
                "topic": topic.name,
                "deleted": outcome.deleted,
                "earliest_seq": outcome.earliest_seq,
                "head_seq": topic.head,
                "count": outcome.count,
                "bytes": outcome.bytes,
                "dry_run": body.dry_run,
            }
            answer(exchange, result)

        def done(deleted: int) -> None:
            tell(DeleteOutcome(deleted, topic.live_count, topic.live_bytes, topic.floor))

        if body.dry_run:
            self._deletions.preview(topic, before, match, tell, exchange.fail, seqs=seqs)
        else:
            self._deletions.delete(topic, before, match, done, exchange.fail, seqs=seqs)
