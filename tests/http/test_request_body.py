import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ApiError
from topics.http.request_body import MAX_MEMBERS, Gunzip
from topics.http.routing import Body, Route


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_gunzip_gives_back_what_was_packed(data, step):
    decoder = Gunzip(gzip.compress(data), 5000)
    while not decoder.step(step):
        pass
    assert decoder.result() == data


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_loops(data):
    decoder = Gunzip(data, 1000)
    with pytest.raises(ApiError) as caught:
        decoder.finish()
    assert caught.value.code in ("invalid_request", "payload_too_large")


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_cut_body_is_refused(data, draw):
    packed = gzip.compress(data)
    cut = draw.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(ApiError) as caught:
        Gunzip(packed[:cut], 1000).finish()
    assert caught.value.code == "invalid_request"


def test_members_add_up_to_one_ceiling():
    packed = gzip.compress(b"a" * 60) + gzip.compress(b"b" * 40)
    assert Gunzip(packed, 100).finish() == b"a" * 60 + b"b" * 40
    with pytest.raises(ApiError) as caught:
        Gunzip(packed, 99).finish()
    assert caught.value.code == "payload_too_large"
    with pytest.raises(ApiError):
        Gunzip(packed + b"trailing", 100).finish()


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_members_that_lie_across_the_pieces_in_which_they_are_read(step):
    parts = [bytes([n]) * 3001 for n in range(100)]
    packed = b"".join(gzip.compress(part, 0) for part in parts)
    decoder = Gunzip(packed, 400_000)
    while not decoder.step(step):
        pass
    assert decoder.result() == b"".join(parts)


def test_a_body_of_countless_empty_members_is_refused_early():
    empty = gzip.compress(b"")
    assert Gunzip(empty * (MAX_MEMBERS - 1) + gzip.compress(b"a"), 10).finish() == b"a"
    with pytest.raises(ApiError) as caught:
        Gunzip(empty * 3_000_000, 10).finish()
    assert caught.value.code == "invalid_request"


def echo(exchange):
    exchange.reply(exchange.body)


@pytest.fixture
def bodies(serve):
    route = Route("POST", "/required", echo, body=Body.REQUIRED, takes_large=True)
    return serve([route], max_body_bytes=2_000_000).connect()


def test_a_large_gzip_body_is_decoded_off_the_loop(bodies):
    data = bytes(range(256)) * 7000
    answer = bodies.request("POST", "/required", gzip.compress(data), {"Content-Encoding": "gzip"})
    assert answer.body == data
