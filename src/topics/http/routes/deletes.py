"""Deletes of records."""

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import invalid
from topics.http.admission.auth import DELETE
from topics.http.exchange import Exchange
from topics.http.routes.fields import check_seqs, unsigned_or_none
from topics.http.routes.service import Service, answer, routes
from topics.http.routing import Body
from topics.log import DeleteOutcome, parse_match


class DeleteBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    before_seq: int | None = None
    match: str | list[object] | None = None
    seqs: list[int] | UnsetType = UNSET
    dry_run: bool = False


@routes.add("POST", "/v0/topics/:topic/delete", scopes=DELETE, body=Body.REQUIRED, accepts=DeleteBody)
def delete(service: Service, exchange: Exchange, body: DeleteBody) -> None:
    seqs = None if body.seqs is UNSET else body.seqs
    if body.before_seq is None and body.match is None and seqs is None:
        raise invalid("before_seq, match or seqs is required")
    before = unsigned_or_none(body.before_seq, "before_seq")
    match = None if body.match is None else parse_match(body.match)
    if seqs is not None:
        check_seqs(seqs)
        if not seqs:
            raise invalid("seqs must name at least one seq")
    topic = service.topic(exchange)
    service.node.routers.pull(topic)

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
        service.deletions.preview(topic, before, match, tell, exchange.fail, seqs=seqs)
    else:
        service.deletions.delete(topic, before, match, done, exchange.fail, seqs=seqs)
