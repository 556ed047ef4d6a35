"""One keep-alive connection to one server, which waits for a server that is restarting."""

import http.client
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from topics.client.errors import Refused, Unreachable

# A restart of the server with a large journal takes seconds; longer outages are for the operator.
PATIENCE_S = 20.0
# Long enough for the slowest single answer, short enough to notice a machine that vanished.
SOCKET_TIMEOUT_S = 60.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
# Nothing was done, and trying again is safe: too much at once, starting or stopping, no room on the disk.
_TRANSIENT = (429, 503, 507)
# Everything below the first, and the second, is a control character.
_SPACE, _DELETE = 0x20, 0x7F

Answer = TypeVar("Answer")


class Connection:
    """Not for several threads at once. Pickles as its address: the copy connects for itself."""

    def __init__(self, url: str, api_key: str | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self.url = url.rstrip("/")
        self._target = _parse(url)
        self._headers = {} if api_key is None else {"Authorization": _bearer(api_key)}
        self._patience_s = patience_s
        self._http: http.client.HTTPConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_http": None}

    def send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> http.client.HTTPResponse:
        """The answer, its body not read yet. Errors of the server are raised as `Refused`."""
        return self._patiently(lambda: self._send_once(method, path, body, content_type))

    def fetch(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> bytes:
        """The whole body of the answer; one that breaks off is asked for again."""
        return self._patiently(lambda: self._send_once(method, path, body, content_type).read())

    def _send_once(
        self, method: str, path: str, body: bytes | None, content_type: str
    ) -> http.client.HTTPResponse:
        headers: dict[str, str | bytes] = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        if self._http is None:
            self._http = _connect(self._target)
        self._http.request(method, self._target.path.rstrip("/") + path, body=body, headers=headers)
        response = self._http.getresponse()
        if response.status >= 400:
            raise _refusal(response)
        return response

    def _patiently(self, attempt: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + self._patience_s
        pause = FIRST_PAUSE_S
        fresh = self._http is None
        while True:
            try:
                return attempt()
            except Refused as refusal:
                if refusal.status not in _TRANSIENT or time.monotonic() + pause > deadline:
                    raise
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not fresh:
                    # The server may close an idle connection at any time: that alone is no outage.
                    fresh = True
                    continue
                if time.monotonic() + pause > deadline:
                    raise Unreachable(f"no answer from the topics server at {self.url}: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def close(self) -> None:
        if self._http is not None:
            with suppress(OSError):
                self._http.close()
            self._http = None


def _parse(url: str) -> SplitResult:
    try:
        target = urlsplit(url)
        is_address = target.scheme in ("http", "https") and target.hostname and target.port != 0
    except ValueError:  # a port that cannot be one
        is_address = False
    if not is_address:
        raise ValueError(f'"{url}" is not the address of a server, which looks like http://127.0.0.1:4000')
    return target


def _bearer(api_key: str) -> bytes:
    """As the server reads keys: trimmed, and in the bytes it was given. No error shows any of it."""
    value = b"Bearer " + api_key.strip().encode("utf-8", "surrogateescape")
    if any(byte < _SPACE or byte == _DELETE for byte in value):
        raise ValueError("the API key has a character in it that no header can carry, such as a line break")
    return value


def _connect(target: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    assert target.hostname is not None
    return kind(target.hostname, target.port, timeout=SOCKET_TIMEOUT_S)


def _refusal(response: http.client.HTTPResponse) -> Refused:
    raw = response.read()
    try:
        error = json.loads(raw)["error"]
        return Refused(response.status, error["code"], error["message"], error.get("detail"))
    except (ValueError, KeyError, TypeError):
        # A proxy in between, or something that is no topics server at all.
        return Refused(response.status, "unknown", raw[:200].decode("utf-8", "replace") or response.reason)
