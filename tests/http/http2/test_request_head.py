"""Fields of HTTP/2 as a request, and those that cannot be one."""

from __future__ import annotations

import pytest

from topics.http.http2_stream import read_head

FIELDS = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a:1"), (b":path", b"/v0?x=1")]


def test_a_request_as_http1_has_it() -> None:
    head = read_head([*FIELDS, (b"x", b"1"), (b"y", b"2"), (b"x", b"3"), (b"content-length", b"5")])
    assert (head.method, head.target, head.is_sound) == (b"POST", b"/v0?x=1", True)
    assert head.headers == {b"host": b"a:1", b"x": b"1, 3", b"y": b"2", b"content-length": b"5"}


def test_a_host_does_for_an_authority_and_memory_is_counted() -> None:
    head = read_head([*FIELDS[:2], FIELDS[3], (b"host", b"b"), (b"big", b"x" * 1000)])
    assert head.headers[b"host"] == b"b"
    assert head.is_sound
    assert 1000 < head.size < 1300


@pytest.mark.parametrize(
    "field",
    [
        (b":path", b"v0"),
        (b":path", b"/v0 x"),
        (b":path", b"/v0\t"),
        (b":path", b"/\xff"),
        (b":path", b"http://a/v0"),
        (b":path", b""),
        (b":method", b"get"),
        (b":method", b"G-T"),
        (b":authority", b"a b"),
        (b":authority", b"u@a"),
        (b":authority", b""),
        (b"content-length", b"+5"),
        (b"content-length", b"1_0"),
        (b"content-length", b"5, 5"),
        (b"content-length", b""),
    ],
)
def test_what_http1_refuses_is_refused(field: tuple[bytes, bytes]) -> None:
    assert not read_head(list((dict(FIELDS) | dict([field])).items())).is_sound


def test_without_any_host_it_is_none() -> None:
    assert not read_head([*FIELDS[:2], FIELDS[3]]).is_sound
