"""Stages over HTTP: parts in, then one commit."""

import asyncio
from functools import partial

import msgspec

from topics.codec import ItemLimits, cut_out
from topics.core import UNDECODABLE, ApiError, StrictDecoder, invalid, require_topic_name, undecodable
from topics.flow.stages.identities import StageRange
from topics.flow.stages.spool import MAX_PARTS
from topics.flow.stages.stages import CommitRequest
from topics.http.admission.auth import WRITE, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.arrow_append import COLUMNS, INLINE_BYTES, note_columns, require_arrow
from topics.http.routes.fields import unsigned
from topics.http.routes.service import Service, answer, check_name, load, routes
from topics.http.routing import Body

MAX_NAME_BYTES = 256
# Brings pyarrow with it.
_PARTS = "topics.flow.stages.parts"


class IdentityBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: str
    batch: int


class CommitBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    identity: IdentityBody
    parts: list[str | int]
    topic: str | None = None


_commit = StrictDecoder(CommitBody)
_decode_parts = msgspec.json.Decoder(list[str | int]).decode
# A letter of a name may be spelled with six.
_LIMITS = ItemLimits(MAX_PARTS, lambda: _too_many_parts(), 8 * MAX_NAME_BYTES, lambda _: _not_short())
_ONE = "/v0/stages/:id"


@routes.add("PUT", _ONE + "/parts/:n", scopes=WRITE, body=Body.REQUIRED, arrow=True, query=("topic",))
async def put_part(service: Service, exchange: Exchange) -> None:
    require_arrow(exchange)
    check = partial(_check_topic, exchange.key)
    default_topic = exchange.query("topic")
    if default_topic is not None:
        check(default_topic)
    stage, part = _short(exchange.name), _short(exchange.params[0])
    await load(_PARTS)
    columns = ("topic", *COLUMNS)
    if len(exchange.body) > INLINE_BYTES:
        await asyncio.to_thread(note_columns, exchange, columns)
    else:
        note_columns(exchange, columns)
    exchange.refuse_unknown_fields()
    owner = _owner(exchange.key)
    about = await service.node.stages.put_part(owner, stage, part, exchange.body, default_topic, check)
    topics = sorted(name for name in about.topics if name is not None)
    answer(exchange, {"stage": stage, "part": part, "count": about.count, "topics": topics})


@routes.add("POST", _ONE + "/commit", scopes=WRITE, body=Body.REQUIRED, accepts=CommitBody, takes_large=True)
async def commit(service: Service, exchange: Exchange, body: CommitBody | None) -> None:
    if body is None:
        body = await asyncio.to_thread(_decode_in_pieces, exchange)
    if len(body.parts) > MAX_PARTS:
        raise _too_many_parts()
    if body.topic is not None:
        _check_topic(exchange.key, body.topic)
    request = CommitRequest(
        _owner(exchange.key),
        _short(exchange.name),
        _short(body.identity.id),
        unsigned(body.identity.batch, "identity.batch"),
        [_short(str(part)) for part in body.parts],
        body.topic,
    )
    if len(set(request.parts)) != len(request.parts):
        raise invalid("parts names one part twice")
    exchange.refuse_unknown_fields()
    await load(_PARTS)
    committed, deduped = await service.node.stages.commit(request)
    topics = {written.topic: _range(written) for written in committed.ranges}
    answer(exchange, {"committed": True, "deduped": deduped, "topics": topics})


@routes.add("DELETE", _ONE, scopes=WRITE)
async def drop(service: Service, exchange: Exchange) -> None:
    exchange.refuse_unknown_fields()
    await load(_PARTS)
    parts = await service.node.stages.drop(_owner(exchange.key), exchange.name)
    answer(exchange, {"stage": exchange.name, "deleted": parts > 0})


def _decode_in_pieces(exchange: Exchange) -> CommitBody:
    cut = cut_out(exchange.body, "parts", _LIMITS)
    body = exchange.decode(_commit, cut.around)
    refusal = cut.too_many or cut.too_large
    if refusal is not None:
        raise refusal
    try:
        for piece, _ in cut.pieces:
            body.parts += _decode_parts(b"[%b]" % piece)
    except UNDECODABLE as error:
        raise undecodable(error) from None
    return body


def _too_many_parts() -> ApiError:
    return invalid(f"one commit names at most {MAX_PARTS} parts")


def _range(written: StageRange) -> dict[str, int]:
    return {
        "first_seq": written.first_seq,
        "last_seq": written.last_seq,
        "count": written.count,
        "epoch": written.epoch,
    }


def _check_topic(key: ApiKey | None, name: str) -> None:
    """Refuse a topic that the key may not write to; rows may name any number of them."""
    require_topic_name(name)
    check_name(key, name)


def _owner(key: ApiKey | None) -> str:
    """Keys with the same prefixes work on the same stages. No prefix contains what joins them here."""
    return "" if key is None else "|".join(sorted(set(key.prefixes)))


def _short(name: str) -> str:
    if not name or len(name.encode()) > MAX_NAME_BYTES:
        raise _not_short()
    return name


def _not_short() -> ApiError:
    return invalid(f"names of stages, parts and identities have 1 to {MAX_NAME_BYTES} bytes")
