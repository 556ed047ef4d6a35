"""The server that a verb talks to: heard before it is asked, then waited for."""

import http.client
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from topics.client import Client, Refused, Unreachable
from topics.values import UserMistake, nearest

# Within this a server says that it is there, or it counts as gone.
HEARD_WITHIN_S = 1.0
# What a verb that follows a topic waits for a server that went away, and every verb for one that is starting.
PATIENCE_S = 30.0
# Once heard, a server may take its time; a machine that vanished is noticed in the end.
ANSWER_WITHIN_S = 600.0
PAUSE_S = 0.1
LIST_PAGE = 1000

Json = dict[str, Any]


class Server:
    """Not for several threads at once: each has a `twin`."""

    def __init__(self, url: str, api_key: str | None = None, *, wait_s: float | None = None) -> None:
        try:
            Client(url, api_key).close()
        except ValueError as error:
            raise UserMistake(str(error)) from None
        self.url = url.rstrip("/")
        self.api_key = api_key
        self.wait_s = wait_s
        self._target: SplitResult = urlsplit(self.url)
        self._headers: dict[str, str | bytes] = {}
        if api_key is not None:
            self._headers["Authorization"] = b"Bearer " + api_key.strip().encode("utf-8", "surrogateescape")
        self._http: http.client.HTTPConnection | None = None

    def twin(self) -> "Server":
        """The same server over a connection of its own."""
        return Server(self.url, self.api_key, wait_s=self.wait_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            with suppress(OSError):
                self._http.close()
            self._http = None

    # --- whether it is there ----------------------------------------------------------------------------

    def hear(self, patience_s: float | None = None) -> None:
        """Raises `Unreachable` if it says nothing within a second, or as long as was asked for."""
        wanted = self.wait_s if patience_s is None else patience_s
        deadline = time.monotonic() + (HEARD_WITHIN_S if wanted is None else max(wanted, HEARD_WITHIN_S))
        while True:
            try:
                self._connect(deadline)
                return
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() + PAUSE_S > deadline or (wanted is None and _is_final(error)):
                    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                    raise Unreachable(f"no topics server answers at {self.url}: {reason}") from None
            time.sleep(PAUSE_S)

    def _connect(self, deadline: float) -> None:
        secure = self._target.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert self._target.hostname is not None
        within = min(max(deadline - time.monotonic(), 0.01), HEARD_WITHIN_S)
        self._http = connection = kind(self._target.hostname, self._target.port, timeout=within)
        connection.connect()
        connection.request("GET", self._target.path + "/v0/health", headers=self._headers)
        connection.getresponse().read()
        if connection.sock is not None:
            connection.sock.settimeout(ANSWER_WITHIN_S)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # --- asking -----------------------------------------------------------------------------------------

    def fetch(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        patience_s: float | None = None,
    ) -> bytes:
        """The body of the answer; an error of the server is raised as `Refused`.

        What may be repeated without harm is, when the connection breaks.
        """
        sent: dict[str, str | bytes] = {**self._headers, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        starting_until = time.monotonic() + max(self.wait_s or 0.0, PATIENCE_S)
        while True:
            if self._http is None:
                self.hear(patience_s)
            assert self._http is not None
            try:
                self._http.request(method, self._target.path + path, body=body, headers=sent)
                response = self._http.getresponse()
                raw = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not repeatable:
                    raise Unreachable(f"no answer from {self.url}, it may have been done or not") from error
                continue
            if response.status < 400:
                return raw
            refusal = _refusal(response, raw)
            if not _may_pass(refusal) or time.monotonic() > starting_until:
                raise refusal
            time.sleep(PAUSE_S)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Json:
        """As `fetch`, in JSON both ways; without how long it took."""
        encoded = None if body is None else msgspec.json.encode(body)
        answer: Json = msgspec.json.decode(self.fetch(method, path, encoded, **options))
        answer.pop("performance", None)
        return answer

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
            meant = nearest(name, self.topic_names())
            if meant is not None:
                said = f"{refusal.message}: did you mean {meant}?"
                return Refused(refusal.status, refusal.code, said, refusal.detail)
        return refusal


def topic_path(name: str, *rest: str) -> str:
    return "/v0/topics/" + "/".join(quote(part, safe="") for part in (name, *rest))


def _may_pass(refusal: Refused) -> bool:
    """It starts, stops or has too much to do; a limit that is reached is another matter."""
    if refusal.code == "throttled":
        return "limit" not in refusal.detail
    return refusal.code in ("not_ready", "shutting_down")


def _is_final(error: Exception) -> bool:
    """Trying again within the same second would not help."""
    return isinstance(error, (ConnectionRefusedError, socket.gaierror))


def _refusal(response: http.client.HTTPResponse, raw: bytes) -> Refused:
    try:
        error = msgspec.json.decode(raw)["error"]
        return Refused(response.status, error["code"], _with_meant(error), error.get("detail"))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        # A proxy in between, or something that is no topics server at all.
        return Refused(response.status, "unknown", raw[:200].decode("utf-8", "replace") or response.reason)


def _with_meant(error: Json) -> str:
    meant = (error.get("detail") or {}).get("did_you_mean") or {}
    questions = "".join(f'; "{name}": did you mean {known}?' for name, known in meant.items())
    return str(error["message"]) + questions
