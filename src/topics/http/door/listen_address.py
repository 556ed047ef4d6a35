"""Where to listen, and whether strangers could reach it there."""

import ipaddress
import socket

from topics.http.door.keys import KeyRing
from topics.values import ConfigError, Settings

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


def refuse_exposure_without_keys(settings: Settings, keyring: KeyRing) -> None:
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
