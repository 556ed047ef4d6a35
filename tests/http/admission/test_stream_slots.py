"""Places for streams: exactly as many as allowed, and every one of them comes back once."""

from __future__ import annotations

import pytest

from topics.core.errors import ApiError
from topics.core.settings import Settings
from topics.http.admission.auth import ApiKey, KeyRing
from topics.http.admission.limits import StreamSlots


def slots(most: int = 0, most_per_key: int = 0) -> StreamSlots:
    return StreamSlots(Settings(max_sse_connections=most, max_sse_connections_per_key=most_per_key))


def keys() -> tuple[ApiKey, ApiKey]:
    one, two = KeyRing.parse("one,two").keys
    return one, two


def refusal(places: StreamSlots, key: ApiKey | None) -> object:
    with pytest.raises(ApiError) as refused:
        places.take(key)
    assert refused.value.code == "throttled"
    assert refused.value.retry_after_s == 1
    return refused.value.detail


def test_exactly_at_the_limit_is_allowed() -> None:
    places = slots(most=2)
    first = places.take(None)
    places.take(None)
    assert refusal(places, None) == {"limit": "max_sse_connections", "max": 2}
    first()
    first()
    assert places.open == 1
    places.take(None)
    assert refusal(places, None)


def test_each_key_has_its_own() -> None:
    places = slots(most_per_key=1)
    one, two = keys()
    give_back = places.take(one)
    places.take(two)
    assert refusal(places, one) == {"limit": "max_sse_connections_per_key", "max": 1}
    # A refused one takes nothing.
    assert places.open == 2
    give_back()
    assert places.open_of(one) == 0
    places.take(one)
    # Without a key only the total counts.
    places.take(None)
    places.take(None)


def test_zero_means_no_limit() -> None:
    places = slots()
    one, _ = keys()
    for _ in range(50):
        places.take(one)
    assert places.open == places.open_of(one) == 50
