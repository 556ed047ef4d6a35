"""Queues over HTTP: claim jobs, at once or when there are some; acknowledge, give back, extend; redrive."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from heapq import nsmallest
from time import perf_counter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from topics.core import MAX_CLAIM, MAX_WAIT_MS, ApiError, invalid, topic_not_found
from topics.flow.queues.dead_letters import LetterBatch, Redrive
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.leases import JobLease
from topics.flow.queues.losses import Notice
from topics.flow.queues.queue import Guarded, JobQueue, Settlement, Verb
from topics.http.admission.auth import READ, WRITE, ApiKey
from topics.http.exchange import Exchange
from topics.http.routes.fields import (
    check_node,
    check_seqs,
    clamped,
    cursor_after,
    lease_length,
    page_size,
    seq_at_start_of_page,
    unsigned_or_none,
)
from topics.http.routes.service import Service, answer, check_name, elapsed_ms, routes, when_copied
from topics.http.routing import Body
from topics.log import Topic, parse_match

MAX_DELAY_MS = 86_400_000
MAX_ERROR_BYTES = 1024
_TOKEN = re.compile(r"lease_[0-9a-fA-F]+\Z")


class ClaimBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    node: str
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0


class HeldBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Jobs that a node says it holds; `lease_ids` guard them one by one."""

    node: str
    seqs: list[int]
    lease_ids: list[str] = []


class NackBody(HeldBody, gc=False, forbid_unknown_fields=True):
    delay_ms: int = 0
    error: str | None = None


class ExtendBody(HeldBody, gc=False, kw_only=True, forbid_unknown_fields=True):
    lease_ms: int


# The error code for more seqs than fit in one request.
_MANY = "batch_too_large"
_SETTLE: dict[str, Any] = {"scopes": WRITE, "body": Body.REQUIRED, "too_large": _MANY}


@routes.add(
    "POST",
    "/v0/topics/:topic/claim",
    scopes=READ | WRITE,
    body=Body.NEVER_EMPTY,
    accepts=ClaimBody,
    enter=when_copied,
)
def claim_jobs(service: Service, exchange: Exchange, body: ClaimBody) -> None:
    check_node(body.node)
    wanted = clamped(body.max, 1, MAX_CLAIM, "max")
    lease_ms = None if body.lease_ms is None else lease_length(body.lease_ms)
    wait_ms = clamped(body.wait_ms, 0, MAX_WAIT_MS, "wait_ms")
    queue = queue_of(service, exchange)
    service.admission.read(exchange.name, is_noted=False)
    config = queue.topic.config

    def done(claim: Claim) -> None:
        if wait_ms and not claim.jobs and claim.notice is None:
            WaitingClaim(service, exchange, queue, claim).wait(wait_ms)
        else:
            reply_claim(exchange, queue, claim.jobs, claim.notice)

    claim = Claim(body.node, wanted, lease_ms or config.lease_ms, done, exchange.fail)
    if queue.dispatcher.has_window:
        exchange.on_close(claim.leave)
    queue.dispatcher.claim(claim)


@routes.add("POST", "/v0/topics/:topic/ack", accepts=HeldBody, **_SETTLE)
def ack(service: Service, exchange: Exchange, body: HeldBody) -> None:
    guarded = check_held(body)
    _settle(service, exchange, Verb.ACK, body.node, guarded)


@routes.add("POST", "/v0/topics/:topic/nack", accepts=NackBody, **_SETTLE)
def nack(service: Service, exchange: Exchange, body: NackBody) -> None:
    guarded = check_held(body)
    delay_ms = clamped(body.delay_ms, 0, MAX_DELAY_MS, "delay_ms")
    error = body.error or ""
    if len(error.encode()) > MAX_ERROR_BYTES:
        raise invalid(f"error must be at most {MAX_ERROR_BYTES} bytes")
    _settle(service, exchange, Verb.NACK, body.node, guarded, delay_ms=delay_ms, error=error)


@routes.add("POST", "/v0/topics/:topic/extend", accepts=ExtendBody, **_SETTLE)
def extend(service: Service, exchange: Exchange, body: ExtendBody) -> None:
    guarded = check_held(body)
    _settle(service, exchange, Verb.EXTEND, body.node, guarded, lease_ms=lease_length(body.lease_ms))


def _settle(
    service: Service,
    exchange: Exchange,
    verb: Verb,
    node: str,
    guarded: Guarded,
    *,
    delay_ms: int = 0,
    error: str = "",
    lease_ms: int = 0,
) -> None:
    queue = queue_of(service, exchange)
    reply = partial(_reply_settled, exchange, queue)
    queue.settle(Settlement(verb, node, guarded, reply, exchange.fail, delay_ms, error, lease_ms))


def queue_of(service: Service, exchange: Exchange) -> JobQueue:
    """The queue in the path, for a request with which nothing else is wrong."""
    queue = service.node.queues.of(service.engine.require(exchange.name))
    if exchange.unknown_fields is not None:
        exchange.refuse_unknown_fields()
    return queue


def check_held(body: HeldBody) -> list[tuple[int, int | None]]:
    """The seqs, each with the lease it must be under, if the caller said which."""
    check_node(body.node)
    seqs, tokens = body.seqs, body.lease_ids
    check_seqs(seqs, _MANY)
    if not tokens:
        return [(seq, None) for seq in seqs]
    if len(tokens) != len(seqs):
        raise invalid("lease_ids must be as many as seqs")
    return [(seq, lease_id(token)) for seq, token in zip(seqs, tokens, strict=True)]


def lease_id(token: str) -> int | None:
    """The lease a token names; an empty one guards nothing."""
    if not token:
        return None
    if _TOKEN.match(token) is None:
        raise invalid("lease_ids must be lease ids as given out by claim, or empty")
    return int(token.partition("_")[2], 16)


def _reply_settled(exchange: Exchange, queue: JobQueue, settled: Settlement) -> None:
    if settled.verb is Verb.EXTEND:
        extended = {
            "topic": queue.topic.name,
            "extended": len(settled.seqs),
            "skipped": settled.skipped,
            "lost": settled.lost,
            "deadlines": dict.fromkeys(settled.seqs, settled.deadline),
        }
        answer(exchange, extended)
        return
    timing = b""
    if settled.verb is Verb.ACK:
        op = settled.op
        timing = b',"fsync_ms":%.3f' % (op.fsync_ms if op is not None and queue.topic.config.durable else 0.0)
    ready, in_flight = queue.counts()
    exchange.reply(
        b'{"topic":"%b","%b":%d,"skipped":[%b],"lost":[%b],"ready":%d,"in_flight":%d,'
        b'"performance":{"server_total_ms":%.3f%b}}'
        % (
            queue.topic.name_json,
            settled.verb.value,
            len(settled.seqs),
            ",".join(map(str, settled.skipped)).encode(),
            ",".join(map(str, settled.lost)).encode(),
            ready,
            in_flight,
            (perf_counter() - exchange.started) * 1000,
            timing,
        )
    )


def reply_claim(
    exchange: Exchange, queue: JobQueue, jobs: list[tuple[int, bytes]], notice: Notice | None
) -> None:
    """Jobs, and the losses that this worker is the one to be told of."""
    if notice is not None and exchange.closed:
        queue.losses.withdraw()
        return
    exchange.reply(
        b'{"topic":"%b","count":%d,"ready":%d,"claimed":[%b],"tombstone":%b,'
        b'"performance":{"server_total_ms":%.3f}}'
        % (
            queue.topic.name_json,
            len(jobs),
            queue.counts()[0],
            b"{" + b",{".join([text for _, text in jobs]) if jobs else b"",
            b"null" if notice is None else notice.json(),
            (perf_counter() - exchange.started) * 1000,
        )
    )
    if notice is not None:
        queue.told(notice)


class WaitingClaim:
    """A worker at the dispatcher of its queue that leaves with its first jobs."""

    is_reader = False

    def __init__(self, service: Service, exchange: Exchange, queue: JobQueue, claim: Claim) -> None:
        """`claim`: what it asked for, in vain."""
        self._service = service
        self._exchange = exchange
        self.key = exchange.key
        self._queue = queue
        self._wish = claim
        self._timer: asyncio.TimerHandle | None = None
        # On its way to being served, with others that asked at the same time.
        self._claim: Claim | None = None
        self._is_over = False

    def wait(self, wait_ms: int) -> None:
        """As long as that, from when the request came."""
        left_s = max(wait_ms - elapsed_ms(self._exchange), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(left_s, self.release)
        self._service.parked.add(self)
        self._queue.dispatcher.add(self)
        self._exchange.on_close(self._leave)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._service.parked.discard(self)
            self._queue.dispatcher.remove(self)
            if self._claim is not None:
                self._claim.leave()

    # --- as a worker of the dispatcher ------------------------------------------------------------------

    @property
    def room(self) -> int:
        return 0 if self._claim is not None else self._wish.wanted

    @property
    def can_receive(self) -> bool:
        return self._claim is None

    def ask(self) -> Claim:
        wish = self._wish
        self._claim = Claim(wish.node, wish.wanted, wish.lease_ms, self._served, self._refused)
        return self._claim

    def _served(self, claim: Claim) -> None:
        self._claim = None
        if claim.jobs or claim.notice is not None or self._is_over:
            self._answer(claim.jobs, claim.notice)

    def _refused(self, error: ApiError) -> None:
        self._claim = None
        self._leave()
        self._exchange.fail(error)

    def tell(self, notice: Notice) -> None:
        self._answer([], notice)

    def queue_gone(self) -> None:
        self._refused(topic_not_found(self._queue.topic.name))

    def release(self) -> None:
        """Its time is over. What is on its way to it is waited for, or jobs would be leased to a worker that
        has gone."""
        if self._claim is not None:
            self._is_over = True
        else:
            self._answer([], None)

    def _answer(self, jobs: list[tuple[int, bytes]], notice: Notice | None) -> None:
        self._leave()
        reply_claim(self._exchange, self._queue, jobs, notice)


# --- leases and dead letters ------------------------------------------------------------------------


class RedriveBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    max: int | UnsetType = UNSET
    match: str | list[object] | None = None
    into: str | None = None


@routes.add("GET", "/v0/topics/:topic/leases", scopes=READ, query=("page_size", "cursor"))
def leases(service: Service, exchange: Exchange) -> None:
    after = seq_at_start_of_page(exchange)
    size = page_size(exchange)
    queue = queue_of(service, exchange)
    queue.refresh()
    held = queue.table.leases
    seqs = nsmallest(size + 1, (seq for seq in held if seq > after))
    body = {"topic": exchange.name, "leases": [_listed(queue, held[seq]) for seq in seqs[:size]]}
    if len(seqs) > size:
        body["next_cursor"] = cursor_after(str(seqs[size - 1]))
    answer(exchange, body)


@routes.add("POST", "/v0/topics/:topic/redrive", scopes=WRITE, body=Body.OPTIONAL, accepts=RedriveBody)
async def redrive(service: Service, exchange: Exchange, body: RedriveBody) -> None:
    most = unsigned_or_none(body.max, "max")
    match = None if body.match is None else parse_match(body.match)
    if body.into is not None:
        check_name(exchange.key, body.into)
    engine = service.engine
    engine.require(exchange.name)
    into = None if body.into is None else service.node.queues.of(engine.require(body.into)).topic
    topic = service.current_topic(exchange)
    if into is topic:
        raise invalid("into must be another topic")
    moving = service.moving.setdefault(topic, set())
    walk = Redrive(engine, topic, moving, _target_finder(service, exchange.key, topic, into), most, match)
    try:
        await _move_all(service, walk)
    finally:
        if not moving:
            service.moving.pop(topic, None)
    told = {
        "topic": topic.name,
        "moved": walk.moved,
        "skipped": walk.skipped,
        "more": walk.has_more,
    }
    answer(exchange, told)


def _target_finder(
    service: Service, key: ApiKey | None, letters: Topic, into: Topic | None
) -> Callable[[str | None], Topic | None]:
    def find(origin: str | None) -> Topic | None:
        if into is not None:
            return into
        if origin is None or not (key is None or key.allows(origin)):
            return None
        topic = service.engine.find(origin)
        return None if topic is None or topic is letters or not topic.config.is_queue else topic

    return find


async def _move_all(service: Service, walk: Redrive) -> None:
    """A refusal ends it: what has been moved by then stays so, and is told."""
    while not walk.is_over:
        for part in walk.step():
            try:
                await _move(service, walk, part)
            except ApiError:
                if not walk.moved:
                    raise
                return
        await asyncio.sleep(0)


async def _move(service: Service, walk: Redrive, part: LetterBatch) -> None:
    moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not moved.done():
            moved.set_result(None)

    def fail(error: ApiError) -> None:
        if not moved.done():
            moved.set_exception(error)

    def work() -> None:
        walk.move(part, done, fail)

    await service.admission.enter_in_turn(part.target.name, part.size, work)
    await moved


def _listed(queue: JobQueue, lease: JobLease) -> dict[str, object]:
    return {
        "$seq": lease.seq,
        "node": lease.node,
        "lease_id": f"lease_{lease.id:x}",
        "deadline": queue.unix_ms(lease.deadline),
        "deliveries": queue.table.deliveries.get(lease.seq, 0),
    }
