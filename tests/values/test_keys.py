"""What the accelerator does with idempotency keys is what `hashlib` and a dictionary do."""

from __future__ import annotations

import gc
import sys
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.accelerated import NATIVE

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the accelerator is not compiled")
# Few, and such that many want the same index; and any at all.
places = st.one_of(
    st.builds(lambda high, low: high << 20 | low, st.integers(0, 3), st.integers(12, 19)),
    st.integers(0, (1 << 60) - 1),
)


@given(salt=st.binary(min_size=16, max_size=16), key=st.binary(max_size=400))
def test_digests_are_those_of_hashlib(salt: bytes, key: bytes) -> None:
    assert NATIVE.key_digest(salt, key) == blake2b(key, digest_size=16, salt=salt).digest()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 257])
def test_digests_of_whole_blocks(size: int) -> None:
    key = bytes(range(256)) + b"\xff"
    assert (
        NATIVE.key_digest(b"s" * 16, key[:size])
        == blake2b(key[:size], digest_size=16, salt=b"s" * 16).digest()
    )


@pytest.mark.parametrize("given_", [(b"short", b"key"), (b"s" * 16, "key"), (b"s" * 16,)])
def test_a_digest_needs_a_salt_and_bytes(given_: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="key_digest"):
        NATIVE.key_digest(*given_)


@given(st.lists(st.tuples(st.sampled_from(["set", "delete", "get"]), places), max_size=200))
def test_places_are_a_dictionary(steps: list[tuple[str, int]]) -> None:
    real, model = NATIVE.Places(), dict[int, object]()
    for number, (step, place) in enumerate(steps):
        if step == "set":
            real[place] = model[place] = object() if number % 2 else "shared"
        elif step == "delete" and place in model:
            del real[place], model[place]
        assert real.get(place) is model.get(place)
        assert (place in real) is (place in model)
        assert len(real) == len(model)
    assert sorted(real.keys()) == sorted(model)
    for place, value in model.items():
        assert real.get(place) is value


def test_what_is_not_there_cannot_be_left() -> None:
    empty = NATIVE.Places()
    assert empty.get(7) is None
    assert 7 not in empty
    for held in (empty, NATIVE.Places()):
        held[8] = "x"
        with pytest.raises(KeyError):
            del held[7]
    with pytest.raises(KeyError):
        del NATIVE.Places()[7]
    with pytest.raises((OverflowError, TypeError)):
        empty[-1] = "x"
    with pytest.raises(TypeError):
        empty.get("x")


def test_chunks_are_held_as_often_as_they_are_there() -> None:
    chunk = object()
    before = sys.getrefcount(chunk)
    held = NATIVE.Places()
    for place in range(1000):
        held[place * 16] = chunk
        held[place * 16] = chunk
    assert sys.getrefcount(chunk) == before + 1000
    for place in range(0, 1000, 2):
        del held[place * 16]
    assert sys.getrefcount(chunk) == before + 500
    del held
    gc.collect()
    assert sys.getrefcount(chunk) == before
