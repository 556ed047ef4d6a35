"""Requests to one server: which failures are retried, for how long, and what is known at the end.

Also resets, in a forked process, what belongs to its parent: sockets, locks, jobs and unsent records.
"""

import itertools
import os
import time
from collections.abc import Callable
from functools import lru_cache
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

import msgspec

from topics.client.encoding import encode_json
from topics.client.errors import Refused, TopicsError, Uncertain, Unreachable, refusal
from topics.client.wire.requests import Broken, NotConnected, Response, WireRequest, path

if TYPE_CHECKING:
    from topics.client.wire.async_io import AsyncIO
    from topics.client.wire.blocking import Blocking

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
# Refusals that pass by themselves, and of which nothing was done.
TRANSIENT = (429, 503)

Json = dict[str, Any]
R = TypeVar("R")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def check_times(timeout_s: float, retry_s: float) -> None:
    """Raise `ValueError` on times that no socket can wait. The comparisons are false for NaN."""
    if not 0 < timeout_s <= TIMEOUT_MAX:
        raise ValueError(f"timeout_s is a number of seconds above 0, not {timeout_s}")
    if not retry_s >= 0:
        raise ValueError(f"retry_s is 0 or more, not {retry_s}")


class RetryRule:
    """Which failures of a request are retried. This is the rule of the SDK."""

    # How long to wait for a server that cannot be reached, from the first failure on. None: as long as all
    # retries of the request may take.
    away_s: float | None = None
    # Whether the server has answered a request yet.
    has_answered = False

    def passes(self, refused: Refused) -> bool:
        """Whether the server may answer otherwise in a moment. May raise what a proxy's answer means."""
        return refused.status in TRANSIENT

    def answered(self) -> None:
        self.has_answered = True

    def unreachable(self, url: str, error: Exception) -> Unreachable:
        return Unreachable(f"no answer from the topics server at {url}: {error}")


class Transient(Exception):
    """A refusal that is retried, after the time that the server asked for."""

    def __init__(self, refused: Refused, pause_s: float) -> None:
        self.refused = refused
        self.pause_s = pause_s


Retryable = NotConnected | Broken | Transient


class Backoff:
    """The pauses between attempts, each twice as long as the one before, until the time is over."""

    def __init__(self, seconds: float, since: float | None = None) -> None:
        self._deadline = (time.monotonic() if since is None else since) + seconds
        self._pause_s = FIRST_PAUSE_S

    def next_pause(self, asked_s: float) -> float | None:
        """The next pause, at least as long as the server asked for; None when the time is over."""
        seconds = max(self._pause_s, asked_s)
        left = self._deadline - time.monotonic()
        if left <= 0:
            return None
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return min(seconds, left)


class Retries:
    """The retries of one request: for a time, and for another time while the server cannot be reached."""

    def __init__(self, session: "Session", patience_s: float, since: float | None = None) -> None:
        self._session = session
        self._patience = Backoff(patience_s, since)
        self._absence: Backoff | None = None

    async def pause_after(self, error: Retryable) -> None:
        """Pause before the next attempt; raise the failure if the time is over."""
        session, backoff, asked_s = self._session, self._patience, 0.0
        failure: TopicsError
        if isinstance(error, Transient):
            failure, asked_s = error.refused, error.pause_s
        else:
            failure = session.rule.unreachable(session.url, error)
            away_s = session.rule.away_s
            if away_s is not None and isinstance(error, NotConnected):
                backoff = self._absence = self._absence or Backoff(away_s)
        pause_s = backoff.next_pause(asked_s)
        if pause_s is None:
            raise failure
        await session.io.pause(pause_s)


class Session:
    """What all operations of one client share."""

    def __init__(
        self, io: "AsyncIO | Blocking", url: str, retry_s: float, rule: RetryRule | None = None
    ) -> None:
        self.io = io
        self.url = url
        self.retry_s = retry_s
        self.rule = rule or RetryRule()
        self.reset_in_child()
        reset_after_fork(self)

    def reset_in_child(self) -> None:
        # A random prefix for each client and a number: a random key for each write would take the system as
        # long as receiving an answer.
        self._key_begins = os.urandom(12).hex()
        self._key_number = itertools.count(1).__next__

    def new_key(self) -> str:
        return f"{self._key_begins}{self._key_number():08x}"

    async def ask(
        self,
        method: str,
        target: str,
        body: Json | None = None,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        patience_s: float | None = None,
        broken: list[Exception] | None = None,
    ) -> Json:
        """Send a JSON request that may be repeated without harm, and return the decoded answer."""
        encoded = None if body is None else encode_json(body)
        request = WireRequest(method=method, target=target, body=encoded, headers=headers)
        return decode_or_refuse(_decode, await self.fetch(request, patience_s, broken))

    async def fetch(
        self,
        request: WireRequest,
        patience_s: float | None = None,
        broken: list[Exception] | None = None,
        *,
        once: bool = False,
    ) -> Response:
        """Send a request until it is answered.

        `broken` collects the attempts that were sent and not answered, so that their effect is not known.
        With `once`, such an attempt is not repeated.
        """
        retries: Retries | None = None  # most requests need none
        began = time.monotonic()
        while True:
            failure: Retryable
            try:
                return self.accepted(await self.io.round_trip(request))
            except Broken as error:
                failure = error
                if broken is not None:
                    broken.append(error)
                if once:
                    said = f"no answer from {self.url}: {error}; it may have been done or not"
                    raise Unreachable(said) from None
            except (NotConnected, Transient) as error:
                failure = error
            retries = retries or Retries(self, self.retry_s if patience_s is None else patience_s, began)
            await retries.pause_after(failure)

    def accepted(self, response: Response) -> Response:
        """Return an answer that is not an error; raise `Transient` or `Refused` for one that is."""
        if response.status >= 400:
            refused = refused_by(response)
            raise Transient(refused, _retry_after_s(response)) if self.rule.passes(refused) else refused
        self.rule.answered()
        return response

    async def write(
        self,
        topic: str,
        request: WireRequest,
        key: str,
        begun: Any = None,
        since: float | None = None,
        came: Response | Broken | None = None,
    ) -> Response:
        """Send a write with an idempotency key, and repeat it while the server is sure to remember the key.

        `begun` is a first attempt that was sent already, at the time `since`, and `came` is its outcome. With
        `since` alone, the outcome of the first attempt is unknown.
        """
        retries: Retries | None = None  # most writes need none
        first_at = began = time.monotonic()
        sent_at: float | None = None  # of the first attempt whose outcome is unknown
        if since is not None:
            began = since
            if came is not None:
                first_at = since
            elif begun is None:
                sent_at = since
                if await self._is_forgotten(topic, sent_at):
                    raise self._uncertain(topic, key)
        while True:
            failure: Retryable
            try:
                if came is None:
                    came = await (self.io.round_trip(request) if begun is None else self.io.finish(begun))
                if isinstance(came, Broken):
                    raise came
                response = self.accepted(came)
                if sent_at is not None:
                    await self._confirm(topic, response, sent_at, key)
                return response
            except Broken as error:
                sent_at = began if sent_at is None else sent_at
                failure = error
            except (NotConnected, Transient) as error:
                failure = error
            came = begun = None
            retries = retries or Retries(self, self.retry_s, first_at)
            try:
                await retries.pause_after(failure)
            except TopicsError:
                if sent_at is None:
                    raise
                raise self._uncertain(topic, key) from None
            began = time.monotonic()
            if sent_at is not None and await self._is_forgotten(topic, sent_at):
                raise self._uncertain(topic, key)

    async def _confirm(self, topic: str, response: Response, sent_at: float, key: str) -> None:
        """Raise `Uncertain` if the repeat was not recognised and the server may have forgotten the key."""
        is_known = decode_or_refuse(_decode, response).get("deduped")
        if not is_known and await self._is_forgotten(topic, sent_at):
            raise self._uncertain(topic, key)

    async def _is_forgotten(self, topic: str, sent_at: float) -> bool:
        """Whether the server may have forgotten a key that was first sent at that time."""
        try:
            response = await self.io.round_trip(WireRequest(method="GET", target=state_path(topic)))
        except (NotConnected, Broken):
            return False  # a repeat would fail, too
        if response.status != 200:
            return False
        state = decode_or_refuse(_decode, response)
        kept_ms = min(
            state["config"]["idempotency_window_ms"], state.get("idempotency_kept_ms", float("inf"))
        )
        return bool((time.monotonic() - sent_at) * 1000 >= kept_ms)

    def _uncertain(self, topic: str, key: str) -> Uncertain:
        return Uncertain(
            f"a write to {topic} was sent to {self.url}, and no answer came: it may be in the log or not",
            idempotency_key=key,
        )


@lru_cache(256)  # a program asks for few topics, many times
def topic_path(topic: str, *rest: str) -> str:
    return path("topics", topic, *rest)


def state_path(topic: str) -> str:
    """The path of a topic's state. The request does not count as a read of the topic."""
    return topic_path(topic) + "?touch=false"


def refused_by(response: Response) -> Refused:
    """The error that an answer carries."""
    request_id = response.headers.get("x-request-id")
    try:
        error = _decode(response.body)["error"]
        return refusal(response.status, error["code"], error["message"], error.get("detail"), request_id)
    except (msgspec.DecodeError, KeyError, TypeError):
        # A proxy, or another program.
        text = " ".join(response.body[:200].decode("utf-8", "replace").split()) or f"status {response.status}"
        return Refused(response.status, "unknown", text, None, request_id)


def decode_or_refuse(decode: Callable[[bytes], R], response: Response) -> R:
    """Decode an answer; raise `Refused` if a proxy or another program sent it."""
    try:
        return decode(response.body)
    except msgspec.DecodeError as error:
        text = response.body[:100].decode("utf-8", "replace")
        reason = f"that is no answer of a topics server ({error}): {text}"
        raise Refused(response.status, "unknown", reason, None) from None


def _retry_after_s(response: Response) -> float:
    try:
        return float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0


# --- forks --------------------------------------------------------------------------------------------------


class Resettable(Protocol):
    def reset_in_child(self) -> None:
        """Called in the child after a fork. The parent finishes what it has begun."""


# One list for the process, because Python calls hooks of the process after a fork.
_to_reset: "WeakSet[Resettable]" = WeakSet()


def reset_after_fork(it: Resettable) -> None:
    _to_reset.add(it)


def _reset_all() -> None:
    for it in list(_to_reset):
        it.reset_in_child()


if hasattr(os, "register_at_fork"):  # not every platform forks
    os.register_at_fork(after_in_child=_reset_all)
