"""Host names that the server answers to, and pages that may talk to it.

A page from elsewhere can send requests to a server on this machine, and by a name of its own that leads here
it can even read the answers. So a server without keys answers only to names that are its own, and what a page
sends is refused unless the page is ours or was let in.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from topics.core import ApiError, ConfigError, Settings
from topics.http.admission.address import is_loopback_address
from topics.http.response_heads import HeaderList

if TYPE_CHECKING:
    from topics.http.request import Request
    from topics.http.routing import Match

_READING = (b"GET", b"HEAD")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Only to be faster: what a client that keeps its name is asked again and again.
_REMEMBERED_HOSTS = 256
_EXPOSED_HEADERS = b"Retry-After, X-Request-Id, Allow, ETag"
_MAX_AGE = b"600"
# A name, or an address of version 4; and one of version 6 in brackets, perhaps with a port.
_NAME = re.compile(r"[0-9a-z_-]+(?:\.[0-9a-z_-]+)*")
_BRACKETED = re.compile(r"\[([^]]*)\](?::(.+))?")


class Preflight(Exception):
    """A browser asks whether a page may ask."""

    def __init__(self, headers: HeaderList) -> None:
        super().__init__("preflight")
        self.headers = headers


class Callers:
    def __init__(
        self, settings: Settings, *, keys_needed: bool, bound: Sequence[tuple[str, int]], is_exposed: bool
    ) -> None:
        """`bound`: the addresses that it listens on."""
        named = parse_hosts(settings.allowed_hosts)
        self._allowed = frozenset(named) - {"*"}
        self._own = frozenset({settings.host.lower().strip("[]"), *(address for address, _ in bound)})
        self._is_everywhere = any(_is_unspecified(address) for address, _ in bound)
        self._any_host = keys_needed or "*" in named
        # Containers reach each other by names that only they know, and are no browsers.
        self._only_browsers = is_exposed and not keys_needed
        self._pages = frozenset(parse_origins(settings.cors_origins))
        self._fine: set[bytes] = set()

    def check(self, request: "Request", match: "Match") -> None:
        """Raises for a host or a page that is not allowed, and `Preflight` for what is answered at once."""
        headers = request.headers
        if not self._any_host:
            host = headers.get(b"host")
            if host is not None and host not in self._fine:
                self._check_host(host, request)
        origin = headers.get(b"origin")
        if origin is not None:
            self._check_origin(origin, request, match)

    # Hosts

    def _check_host(self, host: bytes, request: "Request") -> None:
        name = _name_of(host)
        if self._is_known(name) or self._is_allowed_port(host, request.scheme()):
            if len(self._fine) >= _REMEMBERED_HOSTS:
                self._fine.clear()
            self._fine.add(host)
        elif not (self._only_browsers and not _is_browser(request.headers)) and not (
            self._is_everywhere and name == request.own_address()
        ):
            shown = host.decode("latin-1")
            raise ApiError("forbidden", f'this server does not answer to the host "{shown}"', {"host": shown})

    def _is_known(self, name: str) -> bool:
        if name in self._allowed or name in self._own or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            return is_loopback_address(name)
        except ValueError:
            return False

    def _is_allowed_port(self, host: bytes, scheme: str) -> bool:
        text = host.decode("latin-1")
        # Clients leave out the port that goes without saying.
        usual = f"{text}:{_DEFAULT_PORTS[scheme]}"
        return not self._allowed.isdisjoint((_spelled(text), _spelled(usual)))

    # Pages

    def _check_origin(self, origin: bytes, request: "Request", match: "Match") -> None:
        shown = origin.decode("latin-1")
        page = _normal(shown)
        if page in self._pages:
            request.let_page(origin)
            if request.method_bytes == b"OPTIONS" and b"access-control-request-method" in request.headers:
                raise Preflight(_preflight_headers(request.headers))
        elif page is None or not self._is_own_page(page, request):
            route = match.route
            is_stream = route is not None and (route.event_stream or route.websocket)
            if is_stream or request.method_bytes not in _READING:
                raise ApiError("forbidden", f'pages of "{shown}" may not do this', {"origin": shown})

    def _is_own_page(self, page: str, request: "Request") -> bool:
        scheme = request.scheme()
        hosts = [request.headers.get(b"host", b"").decode("latin-1"), *self._allowed]
        return any(page == _normal(f"{scheme}://{host}") for host in hosts if host)


def page_headers(origin: bytes) -> HeaderList:
    """For the answer to a page that may read it."""
    return [
        (b"Access-Control-Allow-Origin", origin),
        (b"Access-Control-Expose-Headers", _EXPOSED_HEADERS),
        (b"Vary", b"Origin"),
    ]


def _preflight_headers(headers: dict[bytes, bytes]) -> HeaderList:
    answer: HeaderList = [
        (b"Access-Control-Allow-Methods", b"GET, HEAD, PUT, POST, DELETE"),
        (b"Access-Control-Max-Age", _MAX_AGE),
    ]
    asked = headers.get(b"access-control-request-headers")
    return answer if asked is None else [*answer, (b"Access-Control-Allow-Headers", asked)]


def parse_hosts(text: str) -> list[str]:
    """Names that may have a port, which then counts. Raises ConfigError for what cannot be one."""
    found = []
    for entry in filter(None, map(str.strip, text.split(","))):
        if entry != "*" and not _is_host(entry.lower()):
            raise ConfigError(f"TOPICS_ALLOWED_HOSTS: {entry!r} is no host like shop.example")
        found.append(_spelled(entry))
    return found


def _is_host(text: str) -> bool:
    name, port = _parted(text)
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        return False
    return _is_address(name) or (text[0] != "[" and _NAME.fullmatch(name.rstrip(".")) is not None)


def _spelled(host: str) -> str:
    """A host in one way of writing it: an address in brackets only where these set it off from a port."""
    name, port = _parted(host.strip().lower())
    name = name.rstrip(".")
    if _is_address(name):
        name = ipaddress.IPv6Address(name).compressed
        return f"[{name}]:{port.lstrip('0')}" if port else name
    return f"{name}:{port.lstrip('0')}" if port else name


def _parted(host: str) -> tuple[str, str]:
    """Name and port; an address may stand in brackets, and has to where there is a port."""
    bracketed = _BRACKETED.fullmatch(host)
    if bracketed is not None:
        return bracketed[1], bracketed[2] or ""
    if _is_address(host):
        return host, ""
    name, _, port = host.partition(":")
    return name, port


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def parse_origins(text: str) -> list[str]:
    """Raises ConfigError for what cannot be the origin of a page."""
    found = []
    for entry in filter(None, map(str.strip, text.split(","))):
        origin = _normal(entry)
        if origin is None:
            raise ConfigError(f"TOPICS_CORS_ORIGINS: {entry!r} is no origin like https://shop.example")
        found.append(origin)
    return found


def _normal(origin: str) -> str | None:
    """Scheme, host and port in one way of writing them; None for what is no origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    default = _DEFAULT_PORTS.get(parts.scheme)
    if default is None or not parts.hostname or parts.username is not None:
        return None
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return None
    return f"{parts.scheme}://{parts.hostname.rstrip('.')}:{default if port is None else port}"


def _name_of(host: bytes) -> str:
    """Without the port, and without what only sets an address off."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0].rstrip(".") if ":" in text else text.rstrip(".")


def _is_browser(headers: dict[bytes, bytes]) -> bool:
    return (
        b"origin" in headers
        or b"sec-fetch-site" in headers
        or headers.get(b"user-agent", b"").startswith(b"Mozilla/")
    )


def _is_unspecified(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_unspecified
    except ValueError:
        return False
