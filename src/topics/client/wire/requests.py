"""The address of a server, requests to it and their bytes, answers, and the ways in which a request fails."""

import os
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

R = TypeVar("R")
# A coroutine that does no I/O itself: it awaits methods of an `AsyncIO` or a `Blocking`, which runs it.
Operation: TypeAlias = Coroutine[Any, Any, R]

DEFAULT_URL = "http://127.0.0.1:4000"
KEY_HEADER = "Idempotency-Key"
_KEYED = b"%b" + KEY_HEADER.encode() + b": %b\r\nContent-Length: %d\r\n\r\n%b"
_SPACE, _DELETE = 0x20, 0x7F
JSON = "application/json"


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    # How long the server may be silent on purpose, as in a long poll, in addition to the client's timeout.
    wait_s: float = 0.0


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class NotConnected(Exception):
    """The request was not sent."""


class Broken(Exception):
    """The request, or a part of it, was sent, and no complete answer came."""


def broken(error: BaseException) -> Broken:
    return Broken(str(error) or type(error).__name__)


class ClientClosed(RuntimeError):
    """The client is closed."""

    def __init__(self) -> None:
        super().__init__("this client is closed: make another one, or ask before close()")


class Address(msgspec.Struct, frozen=True):
    url: str
    is_tls: bool
    host: str
    port: int
    # The prefix of every path, for a server at a path of a proxy.
    base: str
    head: bytes

    def before_headers(self, request: WireRequest) -> bytes:
        """The beginning of a request with a body, up to its own headers."""
        return _before_headers(request.method, self.base + request.target, self.head, request.content_type)

    def render(self, request: WireRequest) -> bytes:
        """The bytes of a request."""
        body = request.body
        own = b"".join([f"{name}: {value}\r\n".encode() for name, value in request.headers])
        if body is not None:
            return b"%b%bContent-Length: %d\r\n\r\n%b" % (self.before_headers(request), own, len(body), body)
        # Proxies wait for the body of a POST that does not say that it has none.
        ends = request.method in ("GET", "HEAD", "DELETE")
        line = _first_line(request.method, self.base + request.target)
        return line + self.head + own + (b"\r\n" if ends else b"Content-Length: 0\r\n\r\n")


def render_keyed(before_headers: bytes, key: str, body: bytes) -> bytes:
    """The bytes of a request whose only own header is a key."""
    return _KEYED % (before_headers, key.encode(), len(body), body)


@lru_cache(256)  # a program asks for few things, many times
def _before_headers(method: str, target: str, head: bytes, content_type: str) -> bytes:
    return b"%b%bContent-Type: %b\r\n" % (_first_line(method, target), head, content_type.encode())


@lru_cache(256)
def _first_line(method: str, target: str) -> bytes:
    return f"{method} {target} HTTP/1.1\r\n".encode()


def address_of(url: str | None, api_key: str | None) -> Address:
    if url is None:
        url = os.environ.get("TOPICS_URL") or DEFAULT_URL
    if api_key is None:
        api_key = os.environ.get("TOPICS_API_KEY") or None
    try:
        parts = urlsplit(url)
        port = parts.port
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
        # urlsplit drops line breaks, and blanks would be sent.
        is_address = is_address and url.isprintable() and " " not in url
        host = _host(parts.hostname or "", port)
    except ValueError:  # a port that cannot be one, or a name
        is_address, parts, port, host = False, urlsplit(""), None, ""
    if not is_address or parts.query or parts.fragment or parts.username:
        raise ValueError(f'"{url}" is not the address of a server, which looks like {DEFAULT_URL}')
    assert parts.hostname is not None
    is_tls = parts.scheme == "https"
    head = b"Host: %b\r\n" % host.encode()
    if api_key is not None:
        head += b"Authorization: %b\r\n" % bearer(api_key)
    return Address(
        url.rstrip("/"), is_tls, parts.hostname, port or (443 if is_tls else 80), parts.path.rstrip("/"), head
    )


def _host(name: str, port: int | None) -> str:
    shown = f"[{name}]" if ":" in name else name.encode("idna").decode()
    return shown if port is None else f"{shown}:{port}"


def bearer(api_key: str) -> bytes:
    """The value of the header, with the key trimmed as the server does. No error shows any of the key."""
    value = b"Bearer " + api_key.strip().encode("utf-8", "surrogateescape")
    if any(byte < _SPACE or byte == _DELETE for byte in value):
        raise ValueError("the API key has a character in it that no header can carry, such as a line break")
    return value


def path(*names: str) -> str:
    return "/v0/" + "/".join(quote(name, safe="") for name in names)
