"""The server that a verb talks to: heard before it is asked, then waited for."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote, urlencode

import msgspec

from topics.client import Refused, TopicsError, Unreachable
from topics.client.wire.address import address_of
from topics.client.wire.blocking import Blocking
from topics.client.wire.effects import Broken, Exchange, NotConnected, Operation, Request, Response
from topics.client.wire.session import Session, decode_or_refuse, refused_by
from topics.values import UserMistake, did_you_mean, nearest

# Within this a server says that it is there, or it counts as gone.
HEARD_WITHIN_S = 1.0
# What a verb that follows a topic waits for a server that went away, and every verb for one that is starting.
PATIENCE_S = 30.0
# Once heard, a server may take its time; a machine that vanished is noticed in the end.
ANSWER_WITHIN_S = 600.0
PAUSE_S = 0.1
LIST_PAGE = 1000
# What a proxy says when it does not get through to the server.
_OF_GATEWAYS = (502, 503, 504)

Json = dict[str, Any]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Server:
    """Threads may share it: each request has a connection to itself."""

    def __init__(self, url: str, api_key: str | None = None, *, wait_s: float | None = None) -> None:
        try:
            address = address_of(url, api_key)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        self.url = address.url
        self.wait_s = wait_s
        # How long it may be away once it was heard.
        self.away_s = wait_s or 0.0
        self._probe = Blocking(address, HEARD_WITHIN_S)
        # A large body may take its time on the way.
        self._io = Blocking(address, PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._probe.close()
        self._io.close()

    # --- whether it is there ----------------------------------------------------------------------------

    def hear(self) -> None:
        """Raises `Unreachable` if it says nothing within a second, or as long as was asked for."""
        self._hear(self.wait_s or 0.0)

    def await_restarts(self) -> None:
        """From now on: what follows a topic outlives the server."""
        self.away_s = PATIENCE_S if self.wait_s is None else self.wait_s

    def _hear(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            more_s = max(deadline - time.monotonic() - HEARD_WITHIN_S, 0.0)
            try:
                answer = self._probe.run(_once(Request(method="GET", target="/v0/health", wait_s=more_s)))
                if not _is_foreign(answer):
                    return
                raise Broken(f"what answers there is none (status {answer.status})")
            except (NotConnected, Broken) as error:
                if time.monotonic() + PAUSE_S > deadline:
                    raise Unreachable(f"no topics server answers at {self.url}: {error}") from None
            time.sleep(PAUSE_S)

    # --- asking -----------------------------------------------------------------------------------------

    def fetch(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        repeatable: bool = True,
        silent_s: float = ANSWER_WITHIN_S,
    ) -> Response:
        """The answer; an error of the server is raised as `Refused`.

        What may be repeated without harm is, when the connection breaks, or is silent for too long.
        """
        request = Request(method=method, target=path, body=body, headers=headers, wait_s=silent_s)
        give_up = time.monotonic() + max(self.wait_s or 0.0, PATIENCE_S)
        while True:
            try:
                response = self._io.run(_once(request))
                if response.status in _OF_GATEWAYS and _is_foreign(response):
                    raise Broken(f"a proxy answers for it (status {response.status})")
            except (NotConnected, Broken) as error:
                if isinstance(error, Broken) and (not repeatable or time.monotonic() > give_up):
                    said = f"no answer from {self.url}: {error}; it may have been done or not"
                    raise Unreachable(said) from None
                self._hear(self.away_s)
                continue
            refusal = refused_by(response)
            if refusal is None:
                return response
            if not _may_pass(refusal) or time.monotonic() > give_up:
                raise _with_meant(refusal)
            time.sleep(PAUSE_S)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Json:
        """As `fetch`, in JSON both ways; without how long it took."""
        encoded = None if body is None else msgspec.json.encode(body)
        answer = decode_or_refuse(_decode, self.fetch(method, path, encoded, **options))
        answer.pop("performance", None)
        return answer

    def write(self, topic: str, body: Json) -> Json:
        """With a key, and so again over a broken connection; `Uncertain` where that might write it twice."""
        session = Session(self.url, PATIENCE_S if self.wait_s is None else self.wait_s)
        key = session.new_key()
        request = Request(
            method="POST",
            target=topic_path(topic) + "?return_seqs=false",
            body=msgspec.json.encode({**body, "idempotency_key": key}),
            wait_s=ANSWER_WITHIN_S,
        )
        return decode_or_refuse(_decode, self._io.run(session.write(topic, request, key)))

    def listed(self, path: str, key: str, **query: str) -> Iterator[Json]:
        """All entries of a list, page by page."""
        asked = {"page_size": str(LIST_PAGE), **query}
        while True:
            page = self.ask("GET", f"{path}?{urlencode(asked)}")
            yield from page[key]
            if "next_cursor" not in page:
                return
            asked["cursor"] = page["next_cursor"]

    def topic_names(self, prefix: str = "") -> list[str]:
        return [entry["topic"] for entry in self.listed("/v0/topics", "topics", prefix=prefix)]

    def missing(self, refusal: Refused, name: str) -> Refused:
        """The same, with the name that was probably meant."""
        with suppress(Refused, Unreachable):
            question = did_you_mean(name, self.topic_names())
            if question:
                return Refused(refusal.status, refusal.code, refusal.message + question, refusal.detail)
        return refusal

    def none_begins(self, prefix: str) -> TopicsError:
        """No topic begins like this; perhaps one begins with something that is spelled almost so."""
        meant = nearest(prefix, {name[: len(prefix)] for name in self.topic_names()})
        question = "" if meant is None else f": did you mean {meant}*?"
        return TopicsError(f'no topic begins with "{prefix}"{question}' if prefix else "there are no topics")


def topic_path(name: str, *rest: str) -> str:
    if not name:
        raise UserMistake("the name of the topic is empty")
    return "/v0/topics/" + "/".join(quote(part, safe="") for part in (name, *rest))


def _may_pass(refusal: Refused) -> bool:
    """It starts, stops or has too much to do; a limit that is reached is another matter."""
    if refusal.code == "throttled":
        return "limit" not in refusal.detail
    return refusal.code in ("not_ready", "shutting_down")


def _is_foreign(response: Response) -> bool:
    """Something else has answered: a proxy, for a server that is not there, or another program."""
    refusal = refused_by(response)
    return refusal is not None and refusal.code in ("unknown", "not_found")


def _once(request: Request) -> Operation[Response]:
    response: Response = yield Exchange(request)
    return response


def _with_meant(refusal: Refused) -> Refused:
    """The same, with the names that were probably meant."""
    meant = refusal.detail.get("did_you_mean") or {}
    if not meant:
        return refusal
    questions = "".join(f'; "{name}": did you mean {known}?' for name, known in meant.items())
    return Refused(refusal.status, refusal.code, refusal.message + questions, refusal.detail)
