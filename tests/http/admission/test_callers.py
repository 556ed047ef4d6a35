"""How hosts and origins are written, and what is none."""

from __future__ import annotations

import pytest

from topics.core.errors import ConfigError
from topics.http.admission.callers import parse_hosts, parse_origins


def test_hosts_are_written_in_one_way() -> None:
    text = " Shop.example. ,,a:080,10.0.0.1,[::1],FD00:0::1, [fd00:0::2]:90,B.example.:7,*"
    assert parse_hosts(text) == [
        "shop.example",
        "a:80",
        "10.0.0.1",
        "::1",
        "fd00::1",
        "[fd00::2]:90",
        "b.example:7",
        "*",
    ]
    assert parse_hosts(" ") == []


@pytest.mark.parametrize(
    "host",
    [
        "a b",
        "http://x",
        "x/y",
        "*.example",
        "a..b",
        "a:b",
        "a:65536",
        "a:0",
        "[::1",
        "u@a",
        "?",
        "[x]:1",
        "a:٢",
    ],
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_ALLOWED_HOSTS"):
        parse_hosts("a.example," + host)


def test_origins_are_written_in_one_way() -> None:
    text = " https://Shop.example ,http://a:80,, https://[::1]:8443/,http://b:3000"
    assert parse_origins(text) == [
        "https://shop.example:443",
        "http://a:80",
        "https://::1:8443",
        "http://b:3000",
    ]
    assert parse_origins("") == []


@pytest.mark.parametrize(
    "origin",
    [
        "shop.example",
        "*",
        "https://shop.example/path",
        "ftp://x",
        "https://",
        "null",
        "https://a:b",
        "https://u@a",
    ],
)
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(ConfigError, match="TOPICS_CORS_ORIGINS"):
        parse_origins("https://a.example," + origin)
