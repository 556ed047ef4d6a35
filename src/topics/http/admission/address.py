"""Where the server listens, under which path a proxy shows it, and whether strangers can reach it.

A proxy may hand requests on with the base path or without it. Both are understood, so probes that bypass the
proxy work; the addresses that the server reports have the path.
"""

import ipaddress
import re
import socket
from typing import TYPE_CHECKING

from topics.core import ConfigError, Settings

if TYPE_CHECKING:
    from topics.http.admission.auth import KeyRing

DEFAULT_HOST = "127.0.0.1"


def listen_address(settings: Settings) -> tuple[str, int]:
    """TOPICS_HOST may hold the port too; an IPv6 address with a port stands in brackets."""
    host = settings.host.strip()
    if ":" not in host:
        return host or DEFAULT_HOST, settings.port
    if _is_address(host.strip("[]")):
        return host.strip("[]"), settings.port
    name, _, port = host.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ConfigError("TOPICS_HOST: the part after the last colon must be a port")
    return name.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """True only when every address the host resolves to is a loopback one."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    addresses = {str(info[4][0]).partition("%")[0] for info in infos}
    return bool(host) and bool(addresses) and all(is_loopback_address(text) for text in addresses)


def refuse_exposure_without_keys(settings: Settings, keyring: "KeyRing") -> None:
    """An open server that strangers can reach has to be asked for explicitly."""
    if keyring.enabled or settings.allow_insecure_no_auth:
        return
    host, _ = listen_address(settings)
    if not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {host or 'all interfaces'} without API keys: "
            "set TOPICS_API_KEYS, or TOPICS_ALLOW_INSECURE_NO_AUTH=1 if this is intended"
        )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback_address(text: str) -> bool:
    """Raises ValueError for what is no address."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback and not address.is_unspecified


def shown_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_BASE = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
# The first part of our own paths: under such a one, nobody could tell whether it is meant.
_OWN = ("/v0", "/healthz", "/readyz")


def parse_base_path(text: str) -> str:
    """Without a slash at its end; empty for none. Raises ConfigError for what cannot be such a path."""
    base = text.strip().rstrip("/")
    if not base:
        return ""
    if not _BASE.fullmatch(base):
        raise ConfigError(f"TOPICS_BASE_PATH: {text!r} is no path like /topics")
    if f"{base}/".startswith(tuple(f"{own}/" for own in _OWN)):
        raise ConfigError(f"TOPICS_BASE_PATH: {text!r} begins like a path of the server's own")
    return base


def without_base(target: bytes, base: bytes) -> bytes:
    """The target as it is without a proxy."""
    return target[len(base) :] if base and target.startswith(base + b"/") else target
