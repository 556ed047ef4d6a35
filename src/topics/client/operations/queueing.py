"""Claims, renews and settles jobs. Lost jobs are reported before a job is handed out."""

import getpass
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from uuid import uuid4

import msgspec

from topics.client.encoding import Codec, encode_json
from topics.client.errors import InvalidData, LeaseLost, RecordGone, Refused, TopicsError, loss_error
from topics.client.operations.pages import TombstoneReply
from topics.client.operations.reading import OnLoss
from topics.client.operations.settings import WantedTopic
from topics.client.records import AnyLoss
from topics.client.wire.requests import WireRequest
from topics.client.wire.session import Json, Session, decode_or_refuse, reset_after_fork, topic_path

T = TypeVar("T")
# The longest wait of one request. A longer wait takes several.
LONGEST_WAIT_S = 25.0
ERROR_BYTES = 1024
# The lease if the topic's own is not known.
DEFAULT_LEASE_MS = 30_000
MAX_NODE_BYTES = 128
# A lease is renewed when a third of it has passed: two renewals may fail before it ends.
HEARTBEATS = 3


class _JobRow(msgspec.Struct, gc=False):
    data: msgspec.Raw
    lease_id: str
    deadline: int
    deliveries: int
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: dict[str, Any] | None = None


class _Claimed(msgspec.Struct, gc=False):
    claimed: list[_JobRow]
    tombstone: TombstoneReply | None = None
    epoch: int = 0


_decode_claim = msgspec.json.Decoder(_Claimed).decode


class Lease(msgspec.Struct):
    """A claimed job, and the end of its lease."""

    row: _JobRow
    node: str  # who claimed it: a forked process may settle it
    lease_s: float
    ends: float  # on the monotonic clock


class ClaimedJobs:
    """The jobs that a client has claimed and not handed out yet. Threads may share it."""

    def __init__(self) -> None:
        self._user_at_host = user_at_host("worker")
        self.reset_in_child()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        """A forked process is another worker. The parent keeps the jobs that it has claimed."""
        name = f"{self._user_at_host}:{os.getpid()}:{uuid4().hex[:8]}"
        # Unique to this client.
        self.node = name.encode()[-MAX_NODE_BYTES:].decode("utf-8", "ignore")
        self._kept: dict[str, list[Lease]] = {}
        self._lock = threading.Lock()

    def keep(self, topic: str, leases: list[Lease]) -> None:
        with self._lock:
            self._kept.setdefault(topic, []).extend(leases)

    def take(self, topic: str, limit: int) -> list[Lease]:
        """Take up to `limit` jobs whose lease has not ended."""
        with self._lock:
            kept = [lease for lease in self._kept.pop(topic, ()) if time.monotonic() < lease.ends]
            if kept[limit:]:
                self._kept[topic] = kept[limit:]
            return kept[:limit]

    def take_all(self) -> dict[str, list[Lease]]:
        with self._lock:
            kept, self._kept = self._kept, {}
            return kept


def user_at_host(nobody: str) -> str:
    """The name of the user and of the machine. `nobody` stands for a user without a name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = nobody
    return f"{user}@{socket.gethostname()}"


class Claiming(Generic[T]):
    """Claims jobs of one queue for one client."""

    def __init__(
        self, session: Session, topic: str, codec: Codec[T], wanted: WantedTopic, claimed_jobs: ClaimedJobs
    ) -> None:
        self._session = session
        self.topic = topic
        self._codec = codec
        self._wanted = wanted
        self._claimed_jobs = claimed_jobs

    async def claim(
        self, limit: int, lease_ms: int | None, wait_s: float, on_loss: OnLoss | None
    ) -> list[tuple[Lease, T]]:
        """Claim jobs and decode their data. Jobs that come with a loss wait until the loss is handled."""
        if limit < 1:
            raise ValueError("max is 1 or more")
        await self._wanted.ensure()
        deadline = time.monotonic() + wait_s
        while True:
            leases = self._claimed_jobs.take(self.topic, limit)
            if not leases:
                left = min(max(deadline - time.monotonic(), 0.0), LONGEST_WAIT_S)
                leases, loss = await self._ask(limit, lease_ms, left)
                if loss is not None:
                    self._claimed_jobs.keep(self.topic, leases)
                    if on_loss is None:
                        raise loss_error(loss)
                    await self._session.io.call(on_loss, loss)
                    continue
            if leases or time.monotonic() >= deadline:
                return await self._decoded(leases)

    def keep(self, leases: list[Lease]) -> None:
        """Keep jobs that were not handed out, for the next claim or for `close`."""
        if leases:
            self._claimed_jobs.keep(self.topic, leases)

    async def _ask(
        self, limit: int, lease_ms: int | None, wait_s: float
    ) -> tuple[list[Lease], AnyLoss | None]:
        # Explicit, because the topic's own lease may change and renewals have to know it.
        lease_ms = lease_ms or self._wanted.lease_ms or DEFAULT_LEASE_MS
        node = self._claimed_jobs.node
        body: Json = {"node": node, "max": limit, "lease_ms": lease_ms}
        if wait_s > 0:
            body["wait_ms"] = int(wait_s * 1000)
        began = time.monotonic()
        request = WireRequest(
            method="POST", target=topic_path(self.topic) + "/claim", body=encode_json(body), wait_s=wait_s
        )
        response = await self._session.fetch(request)
        # After a wait, the lease began during it, most likely at its end.
        began = time.monotonic() if wait_s else began
        answer = decode_or_refuse(_decode_claim, response)
        lease_s = lease_ms / 1000
        leases = [Lease(row, node, lease_s, began + lease_s) for row in answer.claimed]
        told = answer.tombstone
        return leases, None if told is None else told.loss(self.topic, answer.epoch, None)

    async def _decoded(self, leases: list[Lease]) -> list[tuple[Lease, T]]:
        """Decode jobs. If one does not fit the type, return it with the reason and keep the others."""
        jobs: list[tuple[Lease, T]] = []
        for index, lease in enumerate(leases):
            try:
                jobs.append((lease, self._codec.decode(lease.row.data)))
            except ValueError as error:
                others = [job[0] for job in jobs] + leases[index + 1 :]
                self._claimed_jobs.keep(self.topic, others)
                invalid = InvalidData(self.topic, lease.row.seq, str(error))
                try:
                    await self.settle("nack", lease, {"error": error_text(invalid)})
                except LeaseLost:
                    pass
                raise invalid from error
        return jobs

    async def settle(
        self, verb: str, lease: Lease, more: Json | None = None, patience_s: float | None = None
    ) -> None:
        """Ack, nack or extend one job; `LeaseLost`: the lease has ended."""
        seq = lease.row.seq
        body = {"node": lease.node, "seqs": [seq], "lease_ids": [lease.row.lease_id], **(more or {})}
        broken: list[Exception] = []
        target = f"{topic_path(self.topic)}/{verb}"
        answer = await self._session.ask("POST", target, body, patience_s=patience_s, broken=broken)
        if seq not in answer["skipped"] and seq not in answer.get("lost", ()):
            return
        if verb == "ack" and broken and (await self._is_deleted(seq)):
            return  # by the attempt that was not answered
        raise LeaseLost(self.topic, seq)

    async def renew(self, lease: Lease, is_settled: Callable[[], bool]) -> bool:
        """Extend a lease until its job is settled; False if the lease is lost before that."""
        # A job that the client held for a while has less of its lease left.
        wait_s = min(lease.lease_s, max(lease.ends - time.monotonic(), 0.0)) / HEARTBEATS
        more = {"lease_ms": int(lease.lease_s * 1000)}
        while True:
            await self._session.io.pause(wait_s)
            if is_settled():
                return True
            wait_s = lease.lease_s / HEARTBEATS
            try:
                await self.settle("extend", lease, more, patience_s=wait_s)
            except LeaseLost:
                return is_settled()
            except TopicsError:
                pass  # the next attempt tells whether the lease has ended

    async def _is_deleted(self, seq: int) -> bool:
        try:
            await self._session.ask("GET", f"{topic_path(self.topic)}/records/{seq}")
        except RecordGone as gone:
            return gone.why == "deleted"
        except Refused:
            return False
        return False


async def give_back(session: Session, claimed_jobs: ClaimedJobs) -> None:
    """Release jobs that were never handed out."""
    for topic, leases in claimed_jobs.take_all().items():
        body = {
            "node": claimed_jobs.node,
            "seqs": [lease.row.seq for lease in leases],
            "lease_ids": [lease.row.lease_id for lease in leases],
        }
        try:
            await session.ask("POST", f"{topic_path(topic)}/nack", body, patience_s=0)
        except TopicsError:
            pass  # their leases end by themselves


def error_text(error: BaseException | str | None) -> str | None:
    """The text of an error, cut to the length that the server keeps."""
    if error is None:
        return None
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text.encode("utf-8", "replace")[:ERROR_BYTES].decode("utf-8", "ignore")


def settlement(error: BaseException | str | None, delay_ms: int) -> Json:
    """The optional fields of a nack."""
    more: Json = {"delay_ms": delay_ms} if delay_ms else {}
    if error is not None:
        more["error"] = error_text(error)
    return more
