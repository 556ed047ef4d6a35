"""The SDK's client as the command uses it: how long it waits, and requests without a method of the SDK."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from topics.client import Refused, TopicsError, Unreachable
from topics.client.sync import Topics
from topics.client.wire.blocking import Blocking
from topics.client.wire.requests import Address, Broken, NotConnected, WireRequest, address_of
from topics.client.wire.session import RetryRule, Session, decode_or_refuse, refused_by
from topics.core import UserMistake, did_you_mean, nearest

# A server that does not answer within this time is probed, and counts as gone if it does not answer then.
HEARD_WITHIN_S = 1.0
# How long a verb waits for a server that is starting, and one that follows a topic for a server that is gone.
PATIENCE_S = 30.0
# A server that answers probes may take its time for a request. A machine that vanished is noticed in the end.
ANSWER_WITHIN_S = 600.0
PAUSE_S = 0.1
LIST_PAGE = 1000
# The statuses of a proxy that does not reach the server.
_OF_GATEWAYS = (502, 503, 504)

Json = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def connect(
    url: str,
    api_key: str | None = None,
    *,
    wait_s: float | None = None,
    awaits_restarts: bool = False,
    answer_within_s: float = ANSWER_WITHIN_S,
) -> Topics:
    """Return a client, which waits `wait_s` for the server.

    Once the server has answered, a client that `awaits_restarts` waits as long again whenever it goes away.
    """
    try:
        address = address_of(url, api_key)
    except ValueError as error:
        raise UserMistake(str(error)) from None
    rule = CommandRetries(address, wait_s, awaits_restarts=awaits_restarts)
    io = Blocking(address, answer_within_s, connect_s=HEARD_WITHIN_S, on_silence=rule.probe)
    return Topics._over(Session(io, address.url, max(wait_s or 0.0, PATIENCE_S), rule), io)


class CommandRetries(RetryRule):
    """The retries of a person's command: nothing is waited for that was not asked for."""

    def __init__(self, address: Address, wait_s: float | None, *, awaits_restarts: bool) -> None:
        self._probe = CommandProbe(address)
        self._later_s = (PATIENCE_S if wait_s is None else wait_s) if awaits_restarts else wait_s or 0.0
        self.away_s = wait_s or 0.0

    def answered(self) -> None:
        super().answered()
        self.away_s = self._later_s

    def passes(self, refused: Refused) -> bool:
        """A server that starts, stops or is overloaded; not a limit that is reached."""
        if _is_foreign(refused):
            self.probe()
            if refused.status in _OF_GATEWAYS:
                raise Broken(f"a proxy answers for it (status {refused.status})")
        if refused.code == "throttled":
            return "limit" not in refused.detail
        return refused.code in ("not_ready", "shutting_down")

    def probe(self) -> None:
        self._probe.check(self.away_s or 0.0)

    def unreachable(self, url: str, error: Exception) -> Unreachable:
        return Unreachable(f"no topics server answers at {url}: {error}")


class CommandProbe:
    """Finds out whether a topics server answers at an address."""

    def __init__(self, address: Address) -> None:
        self._url = address.url
        self._io = Blocking(address, HEARD_WITHIN_S)

    def check(self, patience_s: float) -> None:
        """Raise `Unreachable` unless a server answers within a second, or within `patience_s`."""
        deadline = time.monotonic() + patience_s
        while True:
            more_s = max(deadline - time.monotonic() - HEARD_WITHIN_S, 0.0)
            try:
                health = WireRequest(method="GET", target="/v0/health", wait_s=more_s)
                answer = self._io.run(self._io.round_trip(health))
                if answer.status < 400 or not _is_foreign(refused_by(answer)):
                    return
                raise Broken(f"what answers there is none (status {answer.status})")
            except (NotConnected, Broken) as error:
                if time.monotonic() + PAUSE_S > deadline:
                    raise Unreachable(f"no topics server answers at {self._url}: {error}") from None
            time.sleep(PAUSE_S)


def _is_foreign(refused: Refused) -> bool:
    """Whether a proxy or another program may have answered."""
    return refused.code in ("unknown", "not_found")


# --- requests -----------------------------------------------------------------------------------------------


def ask(
    client: Topics,
    method: str,
    path: str,
    body: object = None,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    once: bool = False,
) -> Json:
    """Send a request with a JSON body and return the answer, without its timings.

    With `once`, it is not repeated after a broken connection, because its effect would not be the same.
    """
    encoded = None if body is None else msgspec.json.encode(body)
    request = WireRequest(method=method, target=path, body=encoded, headers=headers)
    try:
        response = client._io.run(client._session.fetch(request, once=once))
    except Refused as refusal:
        raise _with_suggestions(refusal) from None
    answer = decode_or_refuse(_decode, response)
    answer.pop("performance", None)
    return answer


def require_server(client: Topics) -> None:
    """Raise `Unreachable` unless the server answers now, or within the time that it is waited for."""
    client._io.run(client._session.fetch(WireRequest(method="GET", target="/v0/health")))


def listed(client: Topics, path: str, key: str, **query: str) -> Iterator[Json]:
    """All entries of a list, page by page."""
    asked = {"page_size": str(LIST_PAGE), **query}
    while True:
        page = ask(client, "GET", f"{path}?{urlencode(asked)}")
        yield from page[key]
        if "next_cursor" not in page:
            return
        asked["cursor"] = page["next_cursor"]


def topic_path(name: str, *rest: str) -> str:
    return "/v0/topics/" + "/".join(quote(part, safe="") for part in (topic_name(name), *rest))


def topic_name(name: str) -> str:
    """The name, if it is one: the variable of a script may not be set."""
    if not name:
        raise UserMistake("the name of the topic is empty")
    return name


def topic_names(client: Topics, prefix: str = "") -> list[str]:
    return [entry["topic"] for entry in listed(client, "/v0/topics", "topics", prefix=prefix)]


def state_of(client: Topics, topic: str) -> Json:
    """The state of a topic. The request does not count as a read."""
    try:
        return ask(client, "GET", topic_path(topic) + "?touch=false")
    except Refused as refusal:
        raise with_suggestion(client, refusal, topic) from None


def with_suggestion(client: Topics, refusal: Refused, name: str) -> Refused:
    """A refusal with the name of the topic that was probably meant, if no topic has this one."""
    if refusal.code == "topic_not_found":
        with suppress(Refused, Unreachable):
            question = did_you_mean(name, topic_names(client))
            if question:
                return Refused(refusal.status, refusal.code, refusal.message + question, refusal.detail)
    return refusal


def none_begins(client: Topics, prefix: str) -> TopicsError:
    """The error for a prefix that no topic has, with one that was probably meant."""
    meant = nearest(prefix, {name[: len(prefix)] for name in topic_names(client)})
    question = "" if meant is None else f": did you mean {meant}*?"
    return TopicsError(f'no topic begins with "{prefix}"{question}' if prefix else "there are no topics")


def _with_suggestions(refusal: Refused) -> Refused:
    """A refusal with the names that were probably meant, if the server suggests some."""
    meant = refusal.detail.get("did_you_mean") or {}
    if not meant:
        return refusal
    questions = "".join(f'; "{name}": did you mean {known}?' for name, known in meant.items())
    return Refused(refusal.status, refusal.code, refusal.message + questions, refusal.detail)
